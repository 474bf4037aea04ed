"""What the parts of a decode step share: its program and dims, and the residual, which every half
of a layer takes and passes on.

Activations go from task to task with the gain of the next norm already in them, and their makers
give sums of squares beside: whoever reads them applies the scale of the norm to its product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from ..targets.h200 import H200
from .decoder_tasks import Weights
from .model_config import ModelConfig
from .tile_sizes import Tiles

ROW_SUMS = 16  # sums of squares of a row whose parts are added up, whatever its pieces
PIECES = (8, 4, 2)  # of such a row, a task each
MAX_TOKENS, MAX_REQUESTS = 128, 64


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
    """S rows whose token is chosen, `least` or more, are the first of T. `decode_only`: all of T,
    and each has a request of its own."""

    def __init__(
        self, config: ModelConfig, weights: Weights, tiles: Tiles, tokens: int,
        decode_only: bool = False, least: int = 1,
    ) -> None:
        c = config
        self.c, self.weights, self.tiles = c, weights, tiles
        self.tokens, self.decode_only = tokens, decode_only
        self.p = et.Program(f"{c.family}_{c.layers}x{c.hidden}")
        chosen, more = min(tokens, MAX_REQUESTS), 0 if decode_only else tokens - 1
        # One row is a number: extents and places are then known when the kernel is compiled.
        self.S = 1 if tokens == 1 else et.dim("S", min=least, max=chosen)
        self.T = self.S if more == 0 else self.S + et.dim("P", min=0, max=more)
        self.most_rows = chosen + more
        self.gains = self.p.weight("gains", (2 * c.layers + 1, c.hidden), et.f32)
        self.attn = self._residual("attn", c.layers + 1, tiles.down, tiles.down_parts)
        self.mlp = self._residual("mlp", c.layers, tiles.out, tiles.out_parts)

    def pieces(self, tiles: int, otherwise: int) -> int:
        """Of a row of so many tiles: the most for which all rows have workers, or two, if they are
        whole tiles."""
        fit = (n for n in PIECES if n * self.most_rows <= H200.multiprocessors or n == PIECES[-1])
        return next((n for n in fit if tiles % n == 0), otherwise)

    def _residual(self, name: str, layers: int, tile: int, parts: int) -> Residual:
        """Whoever makes it does so in tiles of so many columns, or adds parts up."""
        p, shape = self.p, (layers, self.T, self.c.hidden)
        sums = self.c.hidden // tile if parts == 1 else ROW_SUMS
        return Residual(
            p.scratch(f"h_{name}", shape, et.f32),
            p.scratch(f"x_{name}", shape, self.weights.dtype),
            p.scratch(f"ss_{name}", (layers, self.T, sums), et.f32),
        )
