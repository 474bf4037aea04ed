"""Adds a product to the residual stream. Fused: the task that multiplies a tile also adds it.
Split-K: several tasks multiply parts of K, and others add them; large batches take it, because
their tiles are large and read x less often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import eventtensor as et

from .decoder_tasks import Matrix, add_parts, multiply, project_add
from .step import PIECES, ROW_SUMS, Step, cut

Source = Callable[[Any, int], Any]  # gives part s of n of x


class ResidualProjection:
    """The product with `w` that ends a sublayer, in tiles of `rows` rows and `parts` parts of K.
    Sublayer 0 (attention) takes the residual from `attn` to `mlp`, sublayer 1 to the next layer."""

    def __init__(
        self, step: Step, name: str, w: Matrix, rows: int, parts: int, sublayer: Literal[0, 1]
    ) -> None:
        self.step, self.name, self.w, self.rows, self.parts = step, name, w, rows, parts
        self.sublayer = sublayer
        self.before, self.after = (step.mlp, step.attn) if sublayer else (step.attn, step.mlp)
        if parts > 1:
            shape = (step.c.layers, parts, step.num_tokens, w.rows)
            self.part = step.p.scratch(f"{name}_part", shape, et.f32)

    def add_calls(self, at: Any, source: Source, waits: Any = None) -> None:
        """`waits`: cells that the product waits for; None derives them."""
        if self.parts == 1:
            self._fused(at, source, None if waits is None else lambda i: waits)
        else:
            self._split_k(at, source, None if waits is None else lambda i, s: waits)

    def _gain(self, at: Any, columns: slice) -> Any:
        """The gain of the norm after the sublayer."""
        return self.step.gains[2 * at + self.sublayer + 1, columns]

    def _fused(self, at: Any, source: Source, waits: Any) -> None:
        step, w, rows = self.step, self.w, self.rows
        step.p.call(
            project_add(step.weights), name=f"{self.name}_proj", grid=(w.tiles(rows),),
            reads=lambda i: (source(0, 1), w[at, i, rows], self.before.h[at, :, cut(i, rows)],
                             self._gain(at, cut(i, rows))),
            writes=lambda i: self.after.columns(at + self.sublayer, i, rows), waits=waits)

    def _split_k(self, at: Any, source: Source, waits: Any) -> None:
        step, w, rows, parts = self.step, self.w, self.rows, self.parts
        pieces = step.pieces(w.tiles(rows), otherwise=PIECES[-1])
        each, sums = w.rows // pieces, ROW_SUMS // pieces
        step.p.call(
            multiply(step.weights), name=f"{self.name}_proj", grid=(w.tiles(rows), parts),
            reads=lambda i, s: (source(s, parts), w.part(at, i, rows, s, parts)),
            writes=lambda i, s: self.part[at, s, :, cut(i, rows)], waits=waits)
        step.p.call(
            add_parts(parts, sums), name=f"{self.name}_add", grid=(step.num_tokens, pieces),
            reads=lambda t, j: (self.part[at, :, t, cut(j, each)],
                                self.before.h[at, t, cut(j, each)], self._gain(at, cut(j, each))),
            writes=lambda t, j: self.after.piece(at + self.sublayer, t, j, each, cut(j, sums)))
