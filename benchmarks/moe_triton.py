"""The peer of moe.py: a layer of experts as Triton kernels, with a grouped GEMM for each product.

A layer is six kernels: the router (cuBLAS), top-k, a list of tokens for each expert, the first
product with the activation, the second one, and their sum with the residual and the next norm.
Nothing is padded: a program of the grouped GEMM takes the tokens of one expert, 16 or more at a
time, and experts without any end at once. All sizes are fixed, so that a CUDA graph holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

# ---- kernels ---------------------------------------------------------------------------------


@triton.jit
def top_kernel(scores, ids, share, COUNT: tl.constexpr, TOP: tl.constexpr, NORMED: tl.constexpr):
    """A program a token. Ties go to the lower expert."""
    token = tl.program_id(0)
    expert, slot = tl.arange(0, COUNT), tl.arange(0, TOP)
    left = tl.load(scores + token * COUNT + expert).to(tl.float32)
    most = tl.max(left, axis=0)
    whole = tl.sum(tl.exp(left - most), axis=0)
    chosen = tl.zeros([TOP], tl.int32)
    chance = tl.zeros([TOP], tl.float32)
    for k in tl.static_range(TOP):
        best = tl.max(left, axis=0)
        which = tl.min(tl.where(left == best, expert, COUNT), axis=0)
        chosen = tl.where(slot == k, which, chosen)
        chance = tl.where(slot == k, tl.exp(best - most), chance)
        left = tl.where(expert == which, float("-inf"), left)
    if NORMED:
        whole = tl.sum(chance, axis=0)
    tl.store(ids + token * TOP + slot, chosen)
    tl.store(share + token * TOP + slot, chance / whole)


@triton.jit
def list_kernel(ids, pairs, counts, number, PAIRS: tl.constexpr):
    """A program an expert: the pairs (token, slot) that chose it, in their order."""
    expert, i = tl.program_id(0), tl.arange(0, PAIRS)
    mine = (tl.load(ids + i, mask=i < number, other=-1) == expert).to(tl.int32)
    place = tl.cumsum(mine, axis=0) - 1
    tl.store(pairs + expert * PAIRS + place, i, mask=mine == 1)
    tl.store(counts + expert, tl.sum(mine, axis=0))


@triton.jit
def gate_up_kernel(x, w, act, pairs, counts, TOP: tl.constexpr, K: tl.constexpr,
                   WIDE: tl.constexpr, PAIRS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    """w: (experts, gates and then channels, K). A program takes BN gates and their channels."""
    expert = tl.program_id(1)
    count = tl.load(counts + expert)
    channel, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    gates = w + expert.to(tl.int64) * (2 * WIDE * K) + channel[None, :] * K + k[:, None]
    for first in range(0, count, BM):
        m = first + tl.arange(0, BM)
        there = m < count
        pair = tl.load(pairs + expert * PAIRS + m, mask=there, other=0)
        rows = x + (pair // TOP)[:, None] * K + k[None, :]
        gate = tl.zeros([BM, BN], tl.float32)
        up = tl.zeros([BM, BN], tl.float32)
        for at in range(0, K, BK):
            some = tl.load(rows + at, mask=there[:, None], other=0.0)
            gate = tl.dot(some, tl.load(gates + at), gate)
            up = tl.dot(some, tl.load(gates + WIDE * K + at), up)
        made = gate * tl.sigmoid(gate) * up
        to = act + pair[:, None] * WIDE + channel[None, :]
        tl.store(to, made.to(act.dtype.element_ty), mask=there[:, None])


@triton.jit
def down_kernel(act, w, share, y, pairs, counts, HIDDEN: tl.constexpr, K: tl.constexpr,
                PAIRS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """w: (experts, HIDDEN, K). What a pair gives, times its share."""
    expert = tl.program_id(1)
    count = tl.load(counts + expert)
    column, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    weights = w + expert.to(tl.int64) * (HIDDEN * K) + column[None, :] * K + k[:, None]
    for first in range(0, count, BM):
        m = first + tl.arange(0, BM)
        there = m < count
        pair = tl.load(pairs + expert * PAIRS + m, mask=there, other=0)
        rows = act + pair[:, None] * K + k[None, :]
        found = tl.zeros([BM, BN], tl.float32)
        for at in range(0, K, BK):
            some = tl.load(rows + at, mask=there[:, None], other=0.0)
            found = tl.dot(some, tl.load(weights + at), found)
        found *= tl.load(share + pair, mask=there, other=0.0)[:, None]
        tl.store(y + pair[:, None] * HIDDEN + column[None, :], found, mask=there[:, None])


@triton.jit
def sum_kernel(h, y, gain, x, eps, HIDDEN: tl.constexpr, TOP: tl.constexpr):
    """A program a token: what its experts give goes to the residual; x is that with its norm."""
    token, at = tl.program_id(0), tl.arange(0, HIDDEN)
    new = tl.load(h + token * HIDDEN + at)
    for k in tl.static_range(TOP):
        new += tl.load(y + (token * TOP + k) * HIDDEN + at)
    tl.store(h + token * HIDDEN + at, new)
    scale = tl.rsqrt(tl.sum(new * new, axis=0) / HIDDEN + eps)
    normed = new * scale * tl.load(gain + at)
    tl.store(x + token * HIDDEN + at, normed.to(x.dtype.element_ty))


# ---- layers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """How a grouped GEMM is cut: tokens, columns and K of a program; warps and stages."""

    rows: int = 16
    columns: int = 64
    k: int = 128
    warps: int = 4
    stages: int = 4


TILES = (Tile(), Tile(columns=32), Tile(columns=32, k=256, stages=3), Tile(columns=128, stages=3),
         Tile(columns=64, k=64, stages=6), Tile(columns=64, k=64, warps=8, stages=5))


LISTED = 512  # pairs that a list has room for: one kernel for all numbers of tokens


class Experts:
    """Layers of experts for a fixed number of tokens. `top`: experts of a token, whose shares add
    up to 1 if `normed`."""

    def __init__(self, tokens: int, count: int, top: int, hidden: int, wide: int, normed: bool,
                 device: str = "cuda", dtype: Any = torch.bfloat16) -> None:
        def empty(*shape: int, dtype: Any = torch.int32) -> Any:
            return torch.empty(shape, dtype=dtype, device=device)

        self.tokens, self.count, self.top, self.normed = tokens, count, top, normed
        self.hidden, self.wide = hidden, wide
        self.listed = max(LISTED, triton.next_power_of_2(tokens * top))
        self.ids, self.share = empty(tokens, top), empty(tokens, top, dtype=torch.float32)
        self.pairs, self.counts = empty(count, self.listed), empty(count)
        self.act = empty(tokens * top, wide, dtype=dtype)
        self.y = empty(tokens * top, hidden, dtype=torch.float32)

    def __call__(self, x: Any, router: Any, w_gate_up: Any, w_down: Any, tile: Tile) -> Any:
        """What each of a token's experts gives, times its share: (tokens, top, hidden)."""
        self.route(F.linear(x, router))
        self.multiply(x, w_gate_up, w_down, tile)
        return self.y.view(self.tokens, self.top, self.hidden)

    def route(self, scores: Any) -> None:
        top_kernel[(self.tokens,)](scores, self.ids, self.share, COUNT=self.count, TOP=self.top,
                                   NORMED=self.normed, num_warps=1)
        list_kernel[(self.count,)](self.ids, self.pairs, self.counts, self.tokens * self.top,
                                   PAIRS=self.listed, num_warps=4)

    def multiply(self, x: Any, w_gate_up: Any, w_down: Any, tile: Tile) -> None:
        def cut(k: int) -> dict[str, int]:
            return {"BM": tile.rows, "BN": tile.columns, "BK": min(tile.k, k),
                    "num_warps": tile.warps, "num_stages": tile.stages}

        gate_up_kernel[(self.wide // tile.columns, self.count)](
            x, w_gate_up, self.act, self.pairs, self.counts, TOP=self.top, K=self.hidden,
            WIDE=self.wide, PAIRS=self.listed, **cut(self.hidden))
        down_kernel[(self.hidden // tile.columns, self.count)](
            self.act, w_down, self.share, self.y, self.pairs, self.counts, HIDDEN=self.hidden,
            K=self.wide, PAIRS=self.listed, **cut(self.wide))

def fastest(experts: Experts, x: Any, products: Sequence[tuple[Any, Any]],
            timed: Callable[[Callable[[], None]], float]) -> Tile:
    """The tile with which the products of some layers take the least time, for the routing that was
    asked for last."""
    found: dict[Tile, float] = {}
    for tile in TILES:
        def run(tile: Tile = tile) -> None:
            for w_gate_up, w_down in products:
                experts.multiply(x, w_gate_up, w_down, tile)

        try:
            run()
            found[tile] = timed(run)
        except RuntimeError as e:  # what the device has no room for
            print(f"{tile}: {str(e)[:200]}", flush=True)
    return min(found, key=lambda tile: found[tile])


class Chain:
    """Layers of nothing but experts: `given` rows in, `h` out, float32 between them."""

    def __init__(self, experts: Experts, given: Any, weights: dict[str, Any], gains: Any,
                 eps: float, tile: Tile) -> None:
        self.experts, self.given, self.weights, self.gains = experts, given, weights, gains
        self.eps, self.tile = eps, tile
        self.h = torch.empty_like(given)
        self.x = torch.empty(given.shape, dtype=weights["w_router"].dtype, device=given.device)

    def used(self) -> int:
        """Experts that have a token, all layers together."""
        found = 0
        for k in range(len(self.weights["w_router"])):
            self.step(k + 1)
            found += int((self.experts.counts > 0).sum())
        return found

    def step(self, layers: int | None = None) -> None:
        """All layers, or the first ones: the experts then tell of the last of them."""
        last = len(self.weights["w_router"]) if layers is None else layers
        w, some, hidden = self.weights, self.experts, self.experts.hidden
        self.h.copy_(self.given)
        some.y.zero_()
        for layer in range(last + 1):
            sum_kernel[(some.tokens,)](self.h, some.y, self.gains[2 * layer], self.x, self.eps,
                                       HIDDEN=hidden, TOP=some.top, num_warps=8)
            if layer < last:
                some(self.x, w["w_router"][layer], w["w_gate_up"][layer], w["w_down"][layer],
                     self.tile)
