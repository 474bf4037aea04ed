"""Attention of a single decode token on a GPU. An attention task applies RoPE to its queries itself
and takes the new key and value from the projection; the cache gets them after the last layer. The
pages of the sequence are dealt out to a fixed number of splits in turn. No run-time data decides
which task reads what, so tagged hand-offs are possible."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ...targets.cost_model import AttentionCosts
from ...targets.devices import DEFAULT_DEVICE
from ..kernels import header
from .attention import norm_and_rope
from .attention_block import AttentionBlock
from .attention_mixed import reduce_floats
from .decoder_tasks import Weights, project
from .model_config import ModelConfig
from .step import Step, cut

PARTS = 16  # splits of a sequence at most
# The producer warp loads pages for at most STREAMED_HEADS query heads of a multiple of
# STREAMED_COLUMNS columns.
STREAMED_HEADS, STREAMED_COLUMNS = 8, 64
COLUMNS = 64  # of a head, at most, for a task of `combine`

# CUDA bodies. `out_1` is the extent of axis 1 of out; `arrive()` returns when qkv is there.
_HEADERS = header("attention_decode_single.cuh")
_ATTEND = """
return et::attention::attend_single<streamed, out_0, out_1, kv_2, {parts}, {norm}>(
    worker, smem, qkv, gains, rope, position, table, kv, int(s), out, ml, {eps}f, {scale}f, arrive);
"""
_PRODUCE = """
et::attention::produce_split<kv_3, kv_2, {parts}>(worker, position, table, kv, int(s));
"""
_COMBINE = et.CudaBody(
    "et::attention::combine_single<part_0, part_1>(part, ml, out);", headers=_HEADERS
)
_APPEND = """
et::attention::append_kv<kv_0, {group}, kv_2, {norm}>(qkv, gains, rope, kv, {eps}f);
"""


def has_single_decode(weights: Weights, rows: int, span: int) -> bool:
    """True for the program of a single token, if the target has a CUDA body for it."""
    return rows == 1 and span == 1 and weights.layout != "cpu" and weights.dtype is et.bf16


def parts_for(c: ModelConfig, workers: int = DEFAULT_DEVICE.multiprocessors) -> int:
    """Splits of the sequence for each KV head: a power of two, at most a task for each worker."""
    fit = max(1, min(PARTS, workers // c.kv_heads))
    return 1 << (fit.bit_length() - 1)


def combined_columns(c: ModelConfig) -> int:
    """Columns of a head for a task of `combine`: a power of two."""
    return min(COLUMNS, c.head_dim & -c.head_dim)


def kv_heads_per_append(
    c: ModelConfig, costs: AttentionCosts = DEFAULT_DEVICE.costs.attention
) -> int:
    """KV heads for a task of `append`: as many as a tagged hand-off allows."""
    each = (c.heads // c.kv_heads + 2) * c.head_dim
    sizes = (n for n in range(1, c.kv_heads + 1) if c.kv_heads % n == 0)
    return max((n for n in sizes if n * each <= costs.max_append_words), default=1)


def attend_single(c: ModelConfig, dtype: Any, parts: int) -> Any:
    """Attention of one KV head over pages s, s + parts, .. of the sequence. The new token is the
    last one and not in the cache yet."""
    group, scale = c.heads // c.kv_heads, c.head_dim**-0.5
    source = _ATTEND.format(parts=parts, norm=_norm(c), eps=float(c.norm_eps), scale=scale)
    floats = reduce_floats(group, c.head_dim)
    smem = et.Scratch("smem", et.bf16, f"out_0*out_1 + 8*out_0 + 8*out_1 + 16 + 2*{floats}")
    streams = group <= STREAMED_HEADS and c.head_dim % STREAMED_COLUMNS == 0
    producer = et.Producer(_PRODUCE.format(parts=parts), operands=("position", "table", "kv"))

    @et.task(
        cuda=et.CudaBody(
            source,
            waits_inside=("qkv",),
            scratch=(smem,),
            producer=producer if streams else None,
            headers=_HEADERS,
        )
    )
    def attend(qkv, gains, rope, position, table, kv, out, ml, *, s):
        heads = qkv.reshape(1, group + 2, c.head_dim)
        q = (norm_and_rope(heads[:, :group], gains[0], rope, c) * scale).cast(dtype)
        key = norm_and_rope(heads[:, group : group + 1], gains[1], rope, c).cast(dtype)
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
def combine_single(part, ml, out):
    """Combines all splits of the sequence, for some columns of a head."""
    scale = et.exp(ml[:, 0] - ml[:, 0].max(axis=0))
    out[:] = (part * scale[:, None]).sum(axis=0) / (scale * ml[:, 1]).sum(axis=0)


def append(c: ModelConfig) -> Any:
    """Appends the new key and value to the cache, for some KV heads."""
    group = c.heads // c.kv_heads
    source = _APPEND.format(group=group, norm=_norm(c), eps=float(c.norm_eps))

    @et.task(cuda=et.CudaBody(source, headers=_HEADERS))
    def append(qkv, gains, rope, kv):
        heads = qkv.reshape(kv.shape[0], group + 2, c.head_dim)
        key = norm_and_rope(heads[:, group : group + 1], gains[1], rope, c)
        kv[:] = et.concat([key, heads[:, group + 1 :]], axis=1)

    return append


def _norm(c: ModelConfig) -> str:
    return "true" if c.qk_norm else "false"


class SingleDecodeAttention(AttentionBlock):
    """The attention block of each layer for a single token."""

    def __init__(self, step: Step) -> None:
        super().__init__(step, span=1, alike=True)

    def declare_items(self) -> None:
        """Declares splits, whose places depend on their number alone."""
        c, p, T = self.step.c, self.step.p, self.step.num_tokens
        self.parts, group = parts_for(c, self.step.target.multiprocessors), c.heads // c.kv_heads
        self.mixed = p.scratch("mixed", (c.layers, T, c.heads * c.head_dim),
                               self.step.weights.dtype)
        self.part = p.scratch("part", (c.layers, self.parts, c.kv_heads, group, c.head_dim), et.f32)
        self.part_ml = p.scratch("part_ml", (c.layers, self.parts, c.kv_heads, 2, group), et.f32)

    def add_plan(self) -> None:
        """A single token needs no plan."""

    def _qkv_shape(self, columns: int) -> tuple[Any, ...]:
        return (self.step.c.layers, self.step.num_tokens, columns)

    def _project(self, at: Any) -> None:
        """One task computes all of K and applies the scale of the norm."""
        step, w, tile = self.step, self.w_qkv, self.step.tiles.qkv
        step.p.call(
            project(step.weights, step.c),
            name="qkv_proj",
            grid=(w.tiles(tile),),
            reads=lambda i: (*step.attn.normed(at), w[at, i, tile]),
            writes=lambda i: self.qkv[at, :, cut(i, tile)],
        )

    def attend(self, at: Any) -> None:
        step, c, group = self.step, self.step.c, self.step.c.heads // self.step.c.kv_heads
        words, columns = (group + 2) * c.head_dim, combined_columns(c)
        pieces = c.head_dim // columns
        step.p.call(
            attend_single(c, step.weights.dtype, self.parts), name="attend",
            grid=(c.kv_heads, self.parts),
            reads=lambda g, s: (self.qkv[at, 0, cut(g, words)], self.qk_gains[at, :, :],
                                self.rope[self.position[0], :, :], self.position[0],
                                self.table[self.request[0], :, :], self.kv[at, :, g, :, :, :]),
            writes=lambda g, s: (self.part[at, s, g, :, :], self.part_ml[at, s, g, :, :]))
        step.p.call(
            combine_single, name="combine", grid=(c.kv_heads, group, pieces),
            reads=lambda g, r, k: (self.part[at, :, g, r, cut(k, columns)],
                                   self.part_ml[at, :, g, :, r]),
            writes=lambda g, r, k: self.mixed[at, 0, cut((g * group + r) * pieces + k, columns)])

    def append(self) -> None:
        """Appends the new entries to the cache after the last layer, when no task waits for
        them."""
        step, c, slot, page = self.step, self.step.c, self.slot, self.page
        some = kv_heads_per_append(c)
        words = some * (c.heads // c.kv_heads + 2) * c.head_dim
        step.p.call(
            append(c), grid=(c.layers, c.kv_heads // some),
            reads=lambda i, g: (self.qkv[i, 0, cut(g, words)], self.qk_gains[i, :, :],
                                self.rope[self.position[0], :, :]),
            writes=lambda i, g: self.kv[i, slot[0] // page, cut(g, some), :, slot[0] % page, :])
