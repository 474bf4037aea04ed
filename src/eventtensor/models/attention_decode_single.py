"""Attention in a kernel for steps of one row, on a GPU: who attends turns its queries itself, takes
the row's own key and value from the projection, and the cache gets them when all layers are done.
No run-time data decides what goes from task to task, so that elements may carry flags."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ..ir.products import PANEL
from ..targets.h200 import H200
from .attention import turned
from .attention_block import AttentionBlock
from .attention_mixed import reduce_floats
from .decoder_tasks import Weights, project
from .model_config import ModelConfig
from .step import Step, cut

PARTS = 16  # of a row at most: pages of the cache are dealt out to them in turn
FED_HEADS, FED_COLUMNS = 8, 64  # at most and a multiple of these: then a loader brings pages
COLUMNS = 64  # of a head that a task of `combine` takes at most
APPENDED_WORDS = 3072  # of a task of `append`

# Bodies for a GPU. `out_1` is the extent of axis 1 of out; `arrive()` is over when qkv has come.
_INCLUDE = '#include "cuda/attention_decode_single.cuh"\n'
_ATTEND = _INCLUDE + """
et::bf16* const near = worker.arena.take<et::bf16>(out_0*out_1 + 8*out_0 + 8*out_1 + 16 + 2*{met});
return et::attention::attend_row<streamed, out_0, out_1, kv_2, {parts}, {norm}>(
    worker, near, qkv, gains, rope, position, table, kv, int(s), out, ml, {eps}f, {scale}f, arrive);
"""
_FEED = _INCLUDE + """
et::attention::feed_part<kv_3, kv_2, {parts}>(worker, position, table, kv, int(s));
"""
_COMBINE = _INCLUDE + "et::attention::combine_row<part_0, part_1>(part, ml, out);"
_APPEND = _INCLUDE + """
et::attention::append<kv_0, {group}, kv_2, {norm}>(qkv, gains, rope, kv, {eps}f);
"""


def has_single_decode(weights: Weights, rows: int, span: int) -> bool:
    """True for the program of one row, where a GPU has a tuned body."""
    return rows == 1 and span == 1 and weights.layout != "cpu" and weights.dtype is et.bf16


def parts_for(c: ModelConfig, workers: int = H200.multiprocessors) -> int:
    """Of a row, for each head of keys: a power of two, as many as there are workers for."""
    fit = max(1, min(PARTS, workers // c.kv_heads))
    return 1 << (fit.bit_length() - 1)


def combined_columns(c: ModelConfig) -> int:
    """Of a head, for a task of `combine`: a power of two."""
    return min(COLUMNS, c.head_dim & -c.head_dim)


def kv_heads_per_append(c: ModelConfig) -> int:
    """Heads of keys that a task of `append` takes: as many as may come by flags."""
    each = (c.heads // c.kv_heads + 2) * c.head_dim
    sizes = (n for n in range(1, c.kv_heads + 1) if c.kv_heads % n == 0)
    return max((n for n in sizes if n * each <= APPENDED_WORDS), default=1)


def attend_row(c: ModelConfig, dtype: Any, parts: int) -> Any:
    """For a head of keys, over pages s, s + parts, .. of the row's tokens; its own token is the
    last one, and not in the cache yet."""
    group, scale = c.heads // c.kv_heads, c.head_dim**-0.5
    tuned = _ATTEND.format(parts=parts, norm=_norm(c), eps=float(c.norm_eps), scale=scale,
                           met=reduce_floats(group, c.head_dim))

    fed = group <= FED_HEADS and c.head_dim % FED_COLUMNS == 0
    feed = _FEED.format(parts=parts) if fed else None

    @et.task(cuda=tuned, loader=feed)
    def attend(qkv, gains, rope, position, table, kv, out, ml, *, s):
        heads = qkv.reshape(1, group + 2, c.head_dim)
        q = (turned(heads[:, :group], gains[0], rope, c) * scale).cast(dtype)
        key = turned(heads[:, group : group + 1], gains[1], rope, c).cast(dtype)
        value = heads[:, group + 1 :].cast(dtype)
        _, _, page, width = kv.shape
        pages = table.shape[0] * table.shape[1]
        held = et.gather(kv, table.reshape(pages), axis=0)
        token = et.iota(pages * page)
        own = (token == position)[:, None]
        there = (token // page % parts == s) & (token <= position)
        known = et.where(there[:, None], held[:, 1].reshape(pages * page, width), 0.0)
        keys = et.where(own, key[0], held[:, 0].reshape(pages * page, width)).cast(dtype)
        values = et.where(own & there[:, None], value[0], known).cast(dtype)
        score = et.where(there[None, :], q[0] @ keys.T, -1e30)
        top = score.max(axis=1, keepdims=True)
        weight = et.exp(score - top)
        out[:] = weight.cast(dtype) @ values
        ml[:] = et.concat([top.T, weight.sum(axis=1, keepdims=True).T], axis=0)

    return attend


@et.task(cuda=_COMBINE)
def combine_row(part, ml, out):
    """Of all parts of the row, for some columns of a head."""
    scale = et.exp(ml[:, 0] - ml[:, 0].max(axis=0))
    out[:] = (part * scale[:, None]).sum(axis=0) / (scale * ml[:, 1]).sum(axis=0)


def append(c: ModelConfig) -> Any:
    """The row's entry of the cache, for some heads of keys."""
    group = c.heads // c.kv_heads
    tuned = _APPEND.format(group=group, norm=_norm(c), eps=float(c.norm_eps))

    @et.task(cuda=tuned)
    def append(qkv, gains, rope, kv):
        heads = qkv.reshape(kv.shape[0], group + 2, c.head_dim)
        key = turned(heads[:, group : group + 1], gains[1], rope, c)
        kv[:] = et.concat([key, heads[:, group + 1 :]], axis=1)

    return append


def _norm(c: ModelConfig) -> str:
    return "true" if c.qk_norm else "false"


class SingleDecodeAttention(AttentionBlock):
    """The first half of each layer for one row: T is 1."""

    def __init__(self, step: Step) -> None:
        super().__init__(step, span=1, alike=True)

    def items(self) -> None:
        """Parts of the row have places by their number alone."""
        c, p, T = self.step.c, self.step.p, self.step.T
        self.parts, group = parts_for(c), c.heads // c.kv_heads
        self.mixed = p.scratch("mixed", (c.layers, T, c.heads * c.head_dim),
                               self.step.weights.dtype)
        self.part = p.scratch("part", (c.layers, self.parts, c.kv_heads, group, c.head_dim), et.f32)
        self.part_ml = p.scratch("part_ml", (c.layers, self.parts, c.kv_heads, 2, group), et.f32)

    def plan(self) -> None:
        """Nothing is to be found out."""

    def _qkv_shape(self, columns: int) -> tuple[Any, ...]:
        return (self.step.c.layers, self.step.T, columns)

    def _project(self, at: Any) -> None:
        """All of K, and the scale of the norm, by one task."""
        tile, larger = self.step.tiles.qkv, self.step.tiles.qkv_larger
        self._project_some(at, "qkv_proj", 0, larger or self.w_qkv.tiles(tile), tile)
        if larger:
            first, less = larger * tile, tile - PANEL
            self._project_some(at, "qkv_rest", first, self.w_qkv.behind(first).tiles(less), less)

    def _project_some(self, at: Any, name: str, first: int, tiles: int, rows: int) -> None:
        step, w = self.step, self.w_qkv.behind(first)
        step.p.call(
            project(step.weights, step.c), name=name, grid=(tiles,),
            reads=lambda i: (*step.attn.normed(at), w[at, i, rows]),
            writes=lambda i: self.qkv[at, :, first + i * rows : first + i * rows + rows])

    def attend(self, at: Any) -> None:
        step, c, group = self.step, self.step.c, self.step.c.heads // self.step.c.kv_heads
        words, columns = (group + 2) * c.head_dim, combined_columns(c)
        pieces = c.head_dim // columns
        step.p.call(
            attend_row(c, step.weights.dtype, self.parts), name="attend",
            grid=(c.kv_heads, self.parts),
            reads=lambda g, s: (self.qkv[at, 0, cut(g, words)], self.qk_gains[at, :, :],
                                self.rope[self.position[0], :, :], self.position[0],
                                self.table[self.request[0], :, :], self.kv[at, :, g, :, :, :]),
            writes=lambda g, s: (self.part[at, s, g, :, :], self.part_ml[at, s, g, :, :]))
        step.p.call(
            combine_row, name="combine", grid=(c.kv_heads, group, pieces),
            reads=lambda g, r, k: (self.part[at, :, g, r, cut(k, columns)],
                                   self.part_ml[at, :, g, :, r]),
            writes=lambda g, r, k: self.mixed[at, 0, cut((g * group + r) * pieces + k, columns)])

    def append(self) -> None:
        """After all layers, when nobody waits for it."""
        step, c, slot, page = self.step, self.step.c, self.slot, self.page
        some = kv_heads_per_append(c)
        words = some * (c.heads // c.kv_heads + 2) * c.head_dim
        step.p.call(
            append(c), grid=(c.layers, c.kv_heads // some),
            reads=lambda i, g: (self.qkv[i, 0, cut(g, words)], self.qk_gains[i, :, :],
                                self.rope[self.position[0], :, :]),
            writes=lambda i, g: self.kv[i, slot[0] // page, cut(g, some), :, slot[0] % page, :])
