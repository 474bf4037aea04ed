"""Task kinds of attention over a paged KV cache. The tokens of a sequence are divided into splits;
a work item is a fixed number of splits (`span`), and the last item of a sequence has the rest.
`combine` adds the items of a sequence in order, so a result depends on its own length and on `span`
alone. attention_block.py makes the calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from ..kernels import header
from .decoder_tasks import norm_scale
from .model_config import ModelConfig

# CUDA bodies. `q_1` is the extent of axis 1 of q.
_HEADERS = header("attention.cuh")
_PLAN = """
et::attention::plan<{span}, {fill}>(position, request, table, first, row_, left, pages, {split});
"""
_APPLY_ROPE = """
const float norm = et::attention::sum_row_parts<qkv_0, out_0 * (out_1 + 2), out_2>(
    row, qkv, ss, {hidden}.0f, {eps}f);
et::attention::apply_rope<out_0, out_1, out_2, {norm}>(
    row, norm, gains, rope, out, kv, {eps}f, {scale}f);
"""
_ATTEND = """
constexpr int SMEM_FLOATS = 8 * q_0 * q_1 + 8 * q_1 + 16 * q_0;
et::attention::attend<q_0, q_1, kv_0, kv_2, SMEM_FLOATS>(
    smem, q, left, kv, {{all_left, all_left, all_pages, {after}, {heads} * 2 * kv_2 * q_1}}, out,
    ml);
"""
_ATTEND_CPP = et.CppBody(
    "et::attention::attend<q_0, q_1, kv_0, kv_2>(q, left, kv, out, ml);",
    headers=header("attention_cpu.h"),
)
_COMBINE = et.CudaBody(
    "et::attention::combine<part_1, part_2, part_3>(part, ml, out);", headers=_HEADERS
)


def max_item_splits(span: int) -> int:
    """The most splits of a work item."""
    return 2 * span - 1


def _rotate_pairs(x: Any, rope: Any) -> Any:
    """RoPE of heads (groups, heads, head_dim) at one position."""
    half = rope.shape[1]
    low, high = x[:, :, :half], x[:, :, half:]
    cos, sin = rope[0][None, None, :], rope[1][None, None, :]
    return et.concat([low * cos - high * sin, high * cos + low * sin], axis=2)


def norm_and_rope(x: Any, gain: Any, rope: Any, c: ModelConfig) -> Any:
    """RMSNorm of each head if the model has one, then RoPE."""
    if c.qk_norm:
        mean = (x * x).sum(axis=2, keepdims=True) / float(c.head_dim)
        x = x * et.rsqrt(mean + c.norm_eps) * gain[None, None, :]
    return _rotate_pairs(x, rope)


def _span(splits: Any, most: int, fill: int) -> Any:
    """The smallest power of two below `most` with which all tokens together have at most `fill`
    items; else `most`."""
    found = et.full((), most, et.i32)
    for n in reversed([1 << k for k in range((most - 1).bit_length())] if fill else []):
        found = et.where(et.maximum(splits // n, 1).sum(axis=0) <= fill, n, found)
    return found


def plan_attention(split_tokens: int, most: int, fill: int = 0) -> Any:
    """Items of `most` splits. A step with few tokens has smaller items, as long as their number
    stays within `fill`."""
    source = _PLAN.format(split=split_tokens, span=most, fill=fill)

    @et.task(cuda=et.CudaBody(source, headers=_HEADERS))
    def plan(position, request, table, first, row, left, pages):
        """The work items of token t are first[t] .. first[t + 1]. Pages that an item does not need
        are arbitrary pages of its sequence. Items after those of the last token are 0."""
        found = find_items(position, row.shape[0], split_tokens, most, fill)
        first[:], row[:], left[:] = found.first, found.row, found.left
        pages[:] = found.pages(request, table, pages.shape[1])

    return plan


@dataclass(frozen=True)
class Items:
    """The work items of all tokens, as values. `at`: the number of the first split of each in its
    sequence."""

    first: Any
    row: Any
    left: Any
    used: Any
    at: Any

    def pages(self, request: Any, table: Any, count: Any) -> Any:
        _, room, each = table.shape
        at = (self.at * each)[:, None] + et.iota(count)[None, :]
        held = (et.gather(request, self.row)[:, None] * (room * each)
                + et.minimum(at, room * each - 1))
        flat = table.reshape(table.shape[0] * room * each)
        return et.where(self.used[:, None], et.gather(flat, held), 0)


def find_items(position: Any, count: Any, split_tokens: int, most: int, fill: int) -> Items:
    """`count`: the number of items that the arrays hold."""
    splits = position // split_tokens + 1
    span = _span(splits, most, fill)
    counts = et.maximum(splits // span, 1)
    ends = counts.cumsum(0)
    item = et.iota(count)
    before = (item[:, None] >= ends[None, :]).cast(et.i32).sum(axis=1)
    used, mine = before < ends.shape[0], et.minimum(before, ends.shape[0] - 1)
    nth = et.maximum(item - et.gather(ends - counts, mine), 0)
    rest = et.gather(position, mine) + 1 - nth * span * split_tokens
    last = nth + 1 == et.gather(counts, mine)
    return Items(
        first=et.concat([et.zeros((1,), et.i32), ends], axis=0), row=et.where(used, mine, 0),
        left=et.where(used, et.where(last, rest, span * split_tokens), 0), used=used,
        at=nth * span)


def items_in_flight(heads: int) -> str:
    """C++ for the number of items that all workers compute at a time. It is read anew on each use,
    because no register is free."""
    return f"(et::anew(unsigned(worker.count)) + {heads - 1}) / {heads}"


def apply_rope(c: ModelConfig) -> Any:
    """For some KV heads of a token: queries, scaled for the product with keys, and its entry of the
    cache. Inputs are the split-K parts of the projection (`qkv`) and the sums of squares (`ss`)."""
    group, scale = c.heads // c.kv_heads, c.head_dim**-0.5
    source = _APPLY_ROPE.format(norm="true" if c.qk_norm else "false", eps=float(c.norm_eps),
                                scale=scale, hidden=c.hidden)
    row = et.Scratch("row", et.f32, "qkv_1 + 8*out_0*out_1 + 16*out_0")

    @et.task(cuda=et.CudaBody(source, scratch=(row,), headers=_HEADERS))
    def apply_rope(qkv, ss, gains, rope, out, kv):
        row = qkv[0]
        for k in range(1, int(qkv.shape[0])):
            row = row + qkv[k]
        heads = (row * norm_scale(ss, c)).reshape(out.shape[0], group + 2, c.head_dim)
        out[:] = norm_and_rope(heads[:, :group], gains[0], rope, c) * scale
        key = norm_and_rope(heads[:, group : group + 1], gains[1], rope, c)
        kv[:] = et.concat([key, heads[:, group + 1 :]], axis=1)

    return apply_rope


def attend(dtype: Any, heads: int) -> Any:
    """`heads`: the KV heads of an item, one task each."""
    smem = et.Scratch("smem", et.f32, "8 * q_0 * q_1 + 8 * q_1 + 16 * q_0")
    source = _ATTEND.format(heads=heads, after=items_in_flight(heads))
    fits = dtype is et.bf16
    body = et.CudaBody(source, scratch=(smem,), headers=_HEADERS) if fits else None

    @et.task(cuda=body, cpp=_ATTEND_CPP)
    def attend(q, left, kv, all_left, all_pages, out, ml):
        """`all_left` and `all_pages` belong to this item and those after it, for prefetches into
        the L2."""
        out[:], ml[:] = softmax(q, left, kv, dtype)

    return attend


def softmax(
    q: Any, left: Any, kv: Any, dtype: Any, held: Any = None, new_kv: Any = None
) -> tuple[Any, Any]:
    """The unnormalised result of one item, and beside it the largest score and the sum of weights.
    Tokens from `left` on are unwritten memory and have no effect. `new_kv`, if given, replaces the
    key and the value of token number `held`."""
    pages, _, each, width = kv.shape
    tokens = pages * each
    there = et.iota(tokens) < left
    keys, values = kv[:, 0].reshape(tokens, width), kv[:, 1].reshape(tokens, width)
    if new_kv is not None:
        new = (et.iota(tokens) == held)[:, None]
        keys = et.where(new, new_kv[0][None, :], keys).cast(dtype)
        values = et.where(new, new_kv[1][None, :], values)
    known = et.where(there[:, None], values, 0.0).cast(dtype)
    score = et.where(there[None, :], q @ keys.T, -1e30)
    top = score.max(axis=1, keepdims=True)
    weight = et.exp(score - top)
    sums = et.concat([top.T, weight.sum(axis=1, keepdims=True).T], axis=0)
    return weight.cast(dtype) @ known, sums


@et.task(cuda=_COMBINE)
def combine(part, ml, out):
    """Combines all items of a token, for some KV heads."""
    top = ml[:, :, 0].max(axis=0, keepdims=True)
    scale = et.exp(ml[:, :, 0] - top)
    total = (scale * ml[:, :, 1]).sum(axis=0)
    mixed = (part * scale[:, :, :, None]).sum(axis=0) / total[:, :, None]
    out[:] = mixed.reshape(out.shape[0])
