"""What the parts of a decode step share: its program and dims, how matrices are cut into tiles, and
the residual, which every half of a layer takes and passes on.

Activations go from task to task with the gain of the next norm already in them, and their makers
give sums of squares beside: whoever reads them applies the scale of the norm to its product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from ..ir.products import PANEL
from ..target import H200
from .config import ModelConfig
from .pack import Layout
from .tasks import Weights

WIDE_ROWS, PART_COLUMNS = 128, 128  # that products with many columns take at a time
PIECES = 2  # of a row whose parts are added up, a task each
PIECE_SUMS = 8  # sums of squares that it gives
MAX_TOKENS, MAX_REQUESTS = 128, 64


@dataclass(frozen=True)
class Tiles:
    """Rows of weights that one task takes, for each matrix, and into how many parts of K the
    matrices are cut that add to the residual."""

    qkv: int
    out: int
    gate_up: int
    down: int
    head: int
    out_parts: int = 1
    down_parts: int = 1


def tiles_for(
    c: ModelConfig, layout: Layout, many: bool = False, workers: int = H200.multiprocessors
) -> Tiles:
    """On a GPU a tile a worker, as far as matrices can be cut so: each task pays for its hop and
    its fold; of experts, those of one token together. Threads take what a cache holds. The head has
    no hop: pieces without a long tail. With many rows a tile of the residual's is up to WIDE_ROWS,
    whose x the workers of a GPU read once: there are as many parts of K as give each of them a
    task. (Not of experts, whose tokens are few, and which are many together.)"""
    qkv, hidden = (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden
    if layout == "cpu":
        return Tiles(_most(qkv, PANEL, 64), _most(hidden, PANEL, 64),
                     _most(2 * c.intermediate, 2 * PANEL, 128), _most(hidden, PANEL, 64),
                     _most(c.vocab, PANEL, 256))
    at_once = 1 if c.experts is None else c.experts.top
    first = _least(qkv, PANEL, workers)
    gate_up = _least(2 * c.intermediate, 2 * PANEL, workers // at_once)
    down = _least(hidden, PANEL, workers)
    if not many:
        return Tiles(first, _least(hidden, PANEL, workers), gate_up, down,
                     _most(c.vocab, PANEL, 16 * PANEL))
    out = _most(hidden, PANEL, WIDE_ROWS)
    each = workers // (hidden // out)  # workers for a tile
    in_parts = _parts(c.heads * c.head_dim, each)
    head = _most(c.vocab, PANEL, WIDE_ROWS)
    if c.experts is not None:
        gate_up = _most(2 * c.intermediate, 2 * PANEL, WIDE_ROWS)
        return Tiles(first, out, gate_up, out, head, in_parts)
    return Tiles(first, out, gate_up, out, head, in_parts, _parts(c.intermediate, each))


def _least(rows: int, step: int, most: int) -> int:
    """The smallest tile of which there are at most so many; else all rows."""
    sizes = range(step, rows + 1, step)
    return next((r for r in sizes if rows % r == 0 and rows // r <= most), rows)


def _most(rows: int, step: int, top: int) -> int:
    """The largest tile up to a size."""
    return max(r for r in range(step, min(rows, top) + 1, step) if rows % r == 0)


def _parts(columns: int, most: int) -> int:
    """The most parts of K, up to a number."""
    fit = (n for n in range(1, most + 1) if columns % (n * PART_COLUMNS) == 0)
    return max(fit, default=1)


def cut(i: Any, size: int) -> slice:
    """The i-th piece of so many elements."""
    return slice(i * size, i * size + size)


@dataclass(frozen=True)
class Residual:
    """The residual ahead of one half of each layer: itself, times the gain of the norm, and sums of
    squares. Each layer has its own: no task waits for memory, and elements may carry flags."""

    h: Any
    x: Any
    ss: Any

    def normed(self, at: Any) -> tuple[Any, Any]:
        """What a product of all tokens reads."""
        return self.x[at, :, :], self.ss[at, :, :]

    def columns(self, at: Any, i: Any, size: int) -> tuple[Any, Any, Any]:
        """What one tile writes, for all tokens."""
        return self.h[at, :, cut(i, size)], self.x[at, :, cut(i, size)], self.ss[at, :, i]

    def piece(self, at: Any, t: Any, i: Any, size: int, sums: Any) -> tuple[Any, Any, Any]:
        """What one piece of a token's row writes, with some of the sums."""
        return self.h[at, t, cut(i, size)], self.x[at, t, cut(i, size)], self.ss[at, t, sums]


class Step:
    """S rows whose token is chosen are the first of T."""

    def __init__(self, config: ModelConfig, weights: Weights, tiles: Tiles, tokens: int) -> None:
        c = config
        self.c, self.weights, self.tiles, self.tokens = c, weights, tiles, tokens
        self.p = et.Program(f"{c.family}_{c.layers}x{c.hidden}")
        chosen, more = min(tokens, MAX_REQUESTS), tokens - 1
        # One row is a number: extents and places are then known when the kernel is compiled.
        self.S = 1 if tokens == 1 else et.dim("S", max=chosen)
        self.T = 1 if tokens == 1 else self.S + et.dim("P", min=0, max=more)
        self.most_rows = chosen + more
        self.gains = self.p.weight("gains", (2 * c.layers + 1, c.hidden), et.f32)
        self.attn = self._residual("attn", c.layers + 1, tiles.down, tiles.down_parts)
        self.mlp = self._residual("mlp", c.layers, tiles.out, tiles.out_parts)

    def _residual(self, name: str, layers: int, tile: int, parts: int) -> Residual:
        """Whoever makes it does so in tiles of so many columns, or adds parts up."""
        p, shape = self.p, (layers, self.T, self.c.hidden)
        sums = self.c.hidden // tile if parts == 1 else PIECES * PIECE_SUMS
        return Residual(
            p.scratch(f"h_{name}", shape, et.f32),
            p.scratch(f"x_{name}", shape, self.weights.dtype),
            p.scratch(f"ss_{name}", (layers, self.T, sums), et.f32),
        )
