"""Attention of decode batches on a GPU: each token of a step is the newest of its own sequence. An
attention task applies RoPE to its queries itself and takes the new key and value from the
projection; the cache gets them after the last layer. The only item of a sequence also normalises
its result, so a step of short sequences has no task between projection and attention, nor a
combine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from ...targets.devices import DEFAULT_DEVICE
from ..kernels import header
from .attention import find_items, items_in_flight, norm_and_rope, softmax
from .attention_block import AttentionBlock, kv_heads_per_task, page_tokens
from .attention_mixed import NEXT_KV_BYTES_PER_WARP, fits_kv_pipeline, reduce_floats
from .decoder_tasks import norm_scale
from .model_config import ModelConfig
from .step import Step, cut
from .step_limits import MAX_REQUESTS, MAX_TOKENS

HEADS_PER_TASK = (1, 2, 4)  # KV heads
SMEM_BYTES = 64 * 1024  # for several KV heads: what the B operand of large batches has

# CUDA bodies. `arrive()` returns when qkv and ss are there.
_HEADERS = header("attention_decode_batch.cuh")
_PLAN = """
et::attention::plan<{span}, {fill}>(position, request, table, first, row_, left, pages, {split});
et::attention::place_items(position, first, row_, left, num_cached, rope_position, kv_tokens,
                           result_tokens, num_combined);
"""
_ATTEND = """
const int64_t next = et::next_tile(worker);
return et::attention::attend_decode<qkv_0, out_0, out_1, out_2, kv_3, {heads}, {floats}, {norm}>(
    worker, et::persistent_smem(worker), smem, {{{heads} / out_0 * w + g, next}}, qkv, ss, gains,
    rope, left, num_cached, kv,
    {{all_left, all_cached, all_pages, {after}, {heads} * 2 * kv_3 * out_2}},
    out, ml, mixed, step_kv, {{{hidden}.0f, {eps}f, {scale}f}}, arrive);
"""
_APPEND = et.CudaBody(
    "et::attention::append_kv_layers<step_kv_0, step_kv_1, step_kv_3>(step_kv, kv);",
    headers=_HEADERS,
)


@dataclass(frozen=True)
class DecodeVariant:
    """A kernel for decode batches of `least` to `most` tokens. A task has `heads` KV heads at once:
    as many as let the workers begin with all tokens at the same time, because the time between two
    tasks is lost."""

    least: int
    most: int
    heads: int


def decode_variants(
    c: ModelConfig, workers: int = DEFAULT_DEVICE.multiprocessors
) -> tuple[DecodeVariant, ...]:
    """The kernels of a model; none if the KV pipeline does not support its heads."""
    group = c.heads // c.kv_heads
    if c.kv_heads > workers or not fits_kv_pipeline(group, c.head_dim, page_tokens(c)):
        return ()
    found: list[DecodeVariant] = []
    fit = (n for n in HEADS_PER_TASK if n == 1 or 4 * smem_floats(c, n) <= SMEM_BYTES)
    sizes = [n for n in fit if c.kv_heads % n == 0]
    for heads in sizes:
        least = found[-1].most + 1 if found else 1
        most = MAX_REQUESTS if heads == sizes[-1] else heads * workers // c.kv_heads
        if least <= MAX_REQUESTS:
            found.append(DecodeVariant(least, min(most, MAX_REQUESTS), heads))
    return tuple(found)


def decode_variant(
    c: ModelConfig, rows: int, workers: int = DEFAULT_DEVICE.multiprocessors
) -> DecodeVariant:
    """The kernel for a decode batch of `rows` tokens."""
    found = next((a for a in decode_variants(c, workers) if rows <= a.most), None)
    assert found is not None, f"no decode kernel takes {rows} tokens"
    return found


def smem_floats(c: ModelConfig, heads: int) -> int:
    """Shared memory for the reduction of `heads` KV heads. Several heads also keep the heads after
    RoPE behind it."""
    group = c.heads // c.kv_heads
    behind = heads * (group + 2) * (c.head_dim + 8) // 2 if heads > 1 else 0
    return reduce_floats(group, c.head_dim, heads) + behind


def plan_decode(split_tokens: int, most: int, fill: int) -> Any:
    """Like `plan_attention`, with more fields of each item. `num_cached`: its tokens in the cache,
    which are all but the new token in the last item of a sequence. `rope_position`: the position of
    the new token. Item w writes the new key and value of tokens kv_tokens[w] .. kv_tokens[w + 1]:
    one token for the last item of a sequence, else none. It writes the normalised result of tokens
    result_tokens[w] .. result_tokens[w + 1]: one token for each item if no sequence has several
    items, else none. `num_combined`: the number of tokens to combine, all or none."""
    source = _PLAN.format(split=split_tokens, span=most, fill=fill)

    @et.task(cuda=et.CudaBody(source, headers=_HEADERS))
    def plan(
        position,
        request,
        table,
        first,
        row,
        left,
        pages,
        num_cached,
        rope_position,
        kv_tokens,
        result_tokens,
        num_combined,
    ):
        count, rows = row.shape[0], position.shape[0]
        found = find_items(position, count, split_tokens, most, fill)
        first[:], row[:], left[:] = found.first, found.row, found.left
        pages[:] = found.pages(request, table, pages.shape[1])
        last = et.gather(found.first, found.row + 1) == et.iota(count) + 1
        num_cached[:] = found.left - last.cast(et.i32)
        rope_position[:] = et.gather(position, found.row)
        owner = et.where(found.used, found.row, rows)
        kv_tokens[:] = et.concat([owner, et.full((1,), rows, et.i32)], axis=0)
        each = found.first[rows] <= rows
        result_tokens[:] = et.where(each, et.minimum(et.iota(count + 1), rows), 0)
        num_combined[:] = et.where(each, 0, rows).cast(et.i32).reshape(1)

    return plan


def attend_decode(c: ModelConfig, dtype: Any, some: int) -> Any:
    """Like `attend_mixed` for some KV heads, from the split-K parts of the projection. `num_cached`
    tokens are in the cache."""
    group, scale = c.heads // c.kv_heads, c.head_dim**-0.5
    floats = smem_floats(c, some)
    source = _ATTEND.format(
        heads=c.kv_heads, floats=floats, after=items_in_flight(c.kv_heads),
        norm="true" if c.qk_norm else "false", hidden=c.hidden, eps=float(c.norm_eps), scale=scale)

    @et.task(
        cuda=et.CudaBody(
            source,
            waits_inside=("qkv", "ss"),
            prefetches_next_tile=True,
            persistent_bytes_per_warp=NEXT_KV_BYTES_PER_WARP,
            scratch=(et.Scratch("smem", et.f32, floats),),
            headers=_HEADERS,
        )
    )
    def attend(
        qkv,
        ss,
        gains,
        rope,
        left,
        num_cached,
        kv,
        all_left,
        all_cached,
        all_pages,
        all_kv,
        out,
        ml,
        mixed,
        step_kv,
    ):
        row = qkv[0]
        for k in range(1, int(qkv.shape[0])):
            row = row + qkv[k]
        heads = (row * norm_scale(ss, c)).reshape(some, group + 2, c.head_dim)
        q = (norm_and_rope(heads[:, :group], gains[0], rope, c) * scale).cast(dtype)
        key = norm_and_rope(heads[:, group : group + 1], gains[1], rope, c).cast(dtype)
        value = heads[:, group + 1 :].cast(dtype)
        new_kv = et.concat([key, value], axis=1)
        step_kv[:] = new_kv[None, :, :, :]
        wide = group * c.head_dim
        for k in range(some):
            found, sums = softmax(q[k], left, kv[:, k], dtype, num_cached, new_kv[k])
            out[k], ml[k] = found, sums
            mixed[:, k * wide : (k + 1) * wide] = \
                (found / sums[1][:, None]).reshape(1, wide).cast(dtype)

    return attend


@et.task(cuda=_APPEND)
def append(step_kv, kv):
    """Appends the new keys and values of a token to the cache: some heads, all layers."""
    kv[:] = step_kv


class BatchDecodeAttention(AttentionBlock):
    """The attention block of each layer of a decode batch; a task has `heads` KV heads at once."""

    def __init__(self, step: Step, span: int, alike: bool, heads: int) -> None:
        super().__init__(step, span, alike)
        self.heads = heads
        self.some = kv_heads_per_task(step.c, step.weights.layout, MAX_TOKENS,
                                      step.target.multiprocessors)

    def declare_outputs(self) -> None:
        """Declares what items write of a token: the new key and value, and the whole result if the
        item is its only one."""
        step, W = self.step, self.W
        c, p, T, dtype = step.c, step.p, step.num_tokens, step.weights.dtype
        self.num_cached = p.scratch("num_cached", (W,), et.i32)
        self.rope_position = p.scratch("rope_position", (W,), et.i32, bound=self.rope.shape[0] - 1)
        self.kv_tokens, self.result_tokens = (
            p.scratch(n, (W + 1,), et.i32, bound=T, monotone=True)
            for n in ("kv_tokens", "result_tokens"))
        self.num_combined = p.scratch("num_combined", (1,), et.i32, bound=T)
        self.step_kv = p.scratch("step_kv", (c.layers, T, c.kv_heads, 2, c.head_dim), dtype)
        self.mixed = p.scratch("mixed", (c.layers, T, c.heads * c.head_dim), dtype)
        # One event of attention for all of its consumers.
        self.planned = p.events("planned", ())
        self.attended, self.combined = (p.events(n, (c.layers,)) for n in ("attended", "combined"))

    def add_calls(self, at: Any) -> None:
        self._project(at)
        self.attend(at)
        self.out.add_calls(at, self._source(at),
                       (self.planned[()], self.combined[at], self.attended[at]))

    def add_plan(self) -> None:
        self.step.p.call(
            plan_decode(self.split, self.span, self.fill), grid=(),
            reads=lambda: (self.position[:], self.request[:], self.table[:, :, :]),
            writes=lambda: (self.first[:], self.row[:], self.left[:], self.item_pages[:, :],
                            self.num_cached[:], self.rope_position[:], self.kv_tokens[:],
                            self.result_tokens[:], self.num_combined[:]),
            notifies=lambda: self.planned[()])

    def attend(self, at: Any) -> None:
        step, c, W, row = self.step, self.step.c, self.W, self.row
        kv_tokens, result_tokens = self.kv_tokens, self.result_tokens
        some, group = self.heads, c.heads // c.kv_heads
        words = some * (group + 2) * c.head_dim
        step.p.call(
            attend_decode(c, step.weights.dtype, some), name="attend",
            grid=(self.first[step.num_tokens], c.kv_heads // some),
            reads=lambda w, g: (
                self.qkv[at, :, row[w], cut(g, words)], step.attn.ss[at, row[w], :],
                self.qk_gains[at, :, :], self.rope[self.rope_position[w], :, :], self.left[w],
                self.num_cached[w],
                self.kv[at, self.item_pages[w, :], cut(g, some), :, :, :], self.left[w:W],
                self.num_cached[w:W], self.item_pages[w:W, :], self.kv[at, :, :, :, :, :]),
            writes=lambda w, g: (
                self.part[at, w, cut(g, some), :, :], self.part_ml[at, w, cut(g, some), :, :],
                self.mixed[at, result_tokens[w] : result_tokens[w + 1],
                           cut(g, some * group * c.head_dim)],
                self.step_kv[at, kv_tokens[w] : kv_tokens[w + 1], cut(g, some), :, :]),
            notifies=lambda w, g: self.attended[at])
        self.combine(at, self.num_combined[0],
                     waits=lambda t, g: (self.planned[()], self.attended[at]),
                     notifies=lambda t, g: self.combined[at])

    def append(self) -> None:
        """Appends the new keys and values to the cache after the last layer."""
        step, c, slot, page, some = self.step, self.step.c, self.slot, self.page, self.heads
        step.p.call(
            append, grid=(step.num_tokens, c.kv_heads // some),
            reads=lambda t, g: self.step_kv[:, t, cut(g, some), :, :],
            writes=lambda t, g: self.kv[:, slot[t] // page, cut(g, some), :, slot[t] % page, :],
            waits=lambda t, g: (self.planned[()], self.attended[c.layers - 1]))
