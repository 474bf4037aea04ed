"""How a product is added to the residual: by who multiplies, tile by tile, or in parts of K that
other tasks add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import eventtensor as et

from .tasks import Matrix, Weights, add_parts, multiply, project_add

PIECES = 2  # of a row, each added up by a task
PIECE_SUMS = 8  # sums of squares that it gives


@dataclass(frozen=True)
class Level:
    """A layer of the residual `h`, of `x` (it with the gain of the next norm) and of `ss`, the sums
    of squares of its tiles."""

    h: Any
    x: Any
    ss: Any
    layer: Any


@dataclass(frozen=True)
class Residual:
    """`rows` of weights in a tile; `in_parts` says which of the two ways it is."""

    p: et.Program
    weights: Weights
    tokens: Any
    rows: int
    in_parts: bool

    def add(
        self, name: str, at: Any, source: Callable[[Any, int], Any], w: Matrix, parts: int,
        before: Level, gain: Callable[[slice], Any], after: Level,
    ) -> None:
        """after = before + x times w[at], where `source(s, n)` is part s of n of x, and
        `gain(columns)` some of the gain of the norm after it."""
        p, rows, a, b = self.p, self.rows, after, before
        tiles = w.tiles(rows)

        def cut(i: Any, size: int = rows) -> slice:
            return slice(i * size, i * size + size)

        if not self.in_parts:
            p.call(project_add(self.weights), name=f"{name}_proj", grid=(tiles,),
                   reads=lambda i: (source(0, 1), w[at, i, rows], b.h[b.layer, :, cut(i)],
                                    gain(cut(i))),
                   writes=lambda i: (a.h[a.layer, :, cut(i)], a.x[a.layer, :, cut(i)],
                                     a.ss[a.layer, :, i]))
            return
        shape = (b.h.shape[0], parts, self.tokens, w.rows)
        part = p.scratch(f"{name}_part", shape, et.f32)
        p.call(multiply(self.weights), name=f"{name}_proj", grid=(tiles, parts),
               reads=lambda i, s: (source(s, parts), w.part(at, i, rows, s, parts)),
               writes=lambda i, s: part[at, s, :, cut(i)])
        each = w.rows // PIECES
        p.call(add_parts(parts, PIECE_SUMS), name=f"{name}_add", grid=(self.tokens, PIECES),
               reads=lambda t, j: (part[at, :, t, cut(j, each)],
                                   b.h[b.layer, t, cut(j, each)], gain(cut(j, each))),
               writes=lambda t, j: (a.h[a.layer, t, cut(j, each)],
                                    a.x[a.layer, t, cut(j, each)],
                                    a.ss[a.layer, t, cut(j, PIECE_SUMS)]))
