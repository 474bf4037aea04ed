"""The program of a step: its dims, and the residual stream that the sublayers pass on. The
sublayers are in attention_block.py, llama.py (dense MLP) and moe_block.py.

RMSNorm is fused. Producers multiply activations by the gain of the next norm and write sums of
squares of their tiles; consumers reduce these and scale their product. The norm costs no task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from ...targets.devices import DEFAULT_DEVICE
from ...targets.target import CudaTarget
from .decoder_tasks import Weights
from .model_config import ModelConfig
from .step_limits import MAX_REQUESTS
from .tile_sizes import Tiles

ROW_SUMS = 16  # sums of squares of a token behind a split-K product, whatever its pieces
PIECES = (8, 4, 2)  # of such a token, a task each


def cut(i: Any, size: int) -> slice:
    """The i-th piece of `size` elements."""
    return slice(i * size, i * size + size)


@dataclass(frozen=True)
class Residual:
    """The input of one sublayer of each layer: the residual (`h`), the residual times the gain of
    the norm (`x`), and sums of squares (`ss`). Each layer has its own memory, so no task waits for
    a buffer, and tagged hand-offs are possible."""

    h: Any
    x: Any
    ss: Any

    def normed(self, at: Any) -> tuple[Any, Any]:
        """The operands of a product over all tokens."""
        return self.x[at, :, :], self.ss[at, :, :]

    def columns(self, at: Any, i: Any, size: int) -> tuple[Any, Any, Any]:
        """The outputs of one tile, for all tokens."""
        return self.h[at, :, cut(i, size)], self.x[at, :, cut(i, size)], self.ss[at, :, i]

    def piece(self, at: Any, t: Any, i: Any, size: int, sums: Any) -> tuple[Any, Any, Any]:
        """The outputs of one piece of a token, with some of the sums."""
        return self.h[at, t, cut(i, size)], self.x[at, t, cut(i, size)], self.ss[at, t, sums]


class Step:
    """The first `num_sampled` of `num_tokens` tokens get a successor, at least `least`; the others
    are prefill and only fill the cache. `decode_only`: there is no prefill, and each token is the
    newest of its own sequence."""

    def __init__(
        self, config: ModelConfig, weights: Weights, tiles: Tiles, tokens: int,
        decode_only: bool = False, least: int = 1, target: CudaTarget = DEFAULT_DEVICE,
    ) -> None:
        c = config
        self.c, self.weights, self.tiles = c, weights, tiles
        self.tokens, self.decode_only, self.target = tokens, decode_only, target
        self.p = et.Program(f"{c.family}_{c.layers}x{c.hidden}")
        sampled, prefill = min(tokens, MAX_REQUESTS), 0 if decode_only else tokens - 1
        # A single token is a constant: extents and places are then known at compile time.
        self.num_sampled = 1 if tokens == 1 else et.dim("S", min=least, max=sampled)
        self.num_tokens = (self.num_sampled + et.dim("P", min=0, max=prefill) if prefill
                           else self.num_sampled)
        self.max_tokens = sampled + prefill
        self.gains = self.p.weight("gains", (2 * c.layers + 1, c.hidden), et.f32)
        self.attn = self._residual("attn", c.layers + 1, tiles.down, tiles.down_parts)
        self.mlp = self._residual("mlp", c.layers, tiles.out, tiles.out_parts)

    def pieces(self, tiles: int, otherwise: int) -> int:
        """The pieces of a token with `tiles` tiles: the most for which all tokens have workers,
        else two. Pieces are whole tiles; `otherwise` if that is impossible."""
        workers = self.target.multiprocessors
        fit = (n for n in PIECES if n * self.max_tokens <= workers or n == PIECES[-1])
        return next((n for n in fit if tiles % n == 0), otherwise)

    def _residual(self, name: str, layers: int, tile: int, parts: int) -> Residual:
        """Its producer has tiles of `tile` columns, or adds split-K parts."""
        p, shape = self.p, (layers, self.num_tokens, self.c.hidden)
        sums = self.c.hidden // tile if parts == 1 else ROW_SUMS
        return Residual(
            p.scratch(f"h_{name}", shape, et.f32),
            p.scratch(f"x_{name}", shape, self.weights.dtype),
            p.scratch(f"ss_{name}", (layers, self.num_tokens, sums), et.f32),
        )
