"""How a product is added to the residual: by who multiplies, tile by tile, or in parts of K that
other tasks add up. With many rows the second: tiles are large, so that x is read less often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import eventtensor as et

from .decoder_tasks import Matrix, add_parts, multiply, project_add
from .step import PIECES, ROW_SUMS, Step, cut

Source = Callable[[Any, int], Any]  # part s of n of x


class ResidualProjection:
    """A product with `w`, in tiles of so many rows and in parts of K, that ends a half of each
    layer: the first half takes the residual from `attn` to `mlp`, the second on to the next layer.
    """

    def __init__(
        self, step: Step, name: str, w: Matrix, rows: int, parts: int, half: Literal[0, 1]
    ) -> None:
        self.step, self.name, self.w, self.rows, self.parts = step, name, w, rows, parts
        self.half = half
        self.before, self.after = (step.mlp, step.attn) if half else (step.attn, step.mlp)
        if parts > 1:
            shape = (step.c.layers, parts, step.T, w.rows)
            self.part = step.p.scratch(f"{name}_part", shape, et.f32)

    def calls(self, at: Any, source: Source, waits: Any = None) -> None:
        """`waits`: cells that the product waits for, if they are not derived."""
        if self.parts == 1:
            self._at_once(at, source, None if waits is None else lambda i: waits)
        else:
            self._by_parts(at, source, None if waits is None else lambda i, s: waits)

    def _gain(self, at: Any, columns: slice) -> Any:
        """Of the norm after it."""
        return self.step.gains[2 * at + self.half + 1, columns]

    def _at_once(self, at: Any, source: Source, waits: Any) -> None:
        step, w, rows = self.step, self.w, self.rows
        step.p.call(
            project_add(step.weights), name=f"{self.name}_proj", grid=(w.tiles(rows),),
            reads=lambda i: (source(0, 1), w[at, i, rows], self.before.h[at, :, cut(i, rows)],
                             self._gain(at, cut(i, rows))),
            writes=lambda i: self.after.columns(at + self.half, i, rows), waits=waits)

    def _by_parts(self, at: Any, source: Source, waits: Any) -> None:
        step, w, rows, parts = self.step, self.w, self.rows, self.parts
        pieces = step.pieces(w.tiles(rows), otherwise=PIECES[-1])
        each, sums = w.rows // pieces, ROW_SUMS // pieces
        step.p.call(
            multiply(step.weights), name=f"{self.name}_proj", grid=(w.tiles(rows), parts),
            reads=lambda i, s: (source(s, parts), w.part(at, i, rows, s, parts)),
            writes=lambda i, s: self.part[at, s, :, cut(i, rows)], waits=waits)
        step.p.call(
            add_parts(parts, sums), name=f"{self.name}_add", grid=(step.T, pieces),
            reads=lambda t, j: (self.part[at, :, t, cut(j, each)],
                                self.before.h[at, t, cut(j, each)], self._gain(at, cut(j, each))),
            writes=lambda t, j: self.after.piece(at + self.half, t, j, each, cut(j, sums)))
