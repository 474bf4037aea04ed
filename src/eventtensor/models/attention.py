"""Attention over a paged cache: rows are split by tokens, parts of a row are folded afterwards, so
that what a row gives depends on its own length and on `span` alone: the splits of a row that a work
item has; what would be too little for another item belongs to the last of the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from .decoder_tasks import norm_scale
from .model_config import ModelConfig

# Bodies for a GPU, of device/cuda/attention.cuh. `q_1` is the extent of axis 1 of q.
_INCLUDE = '#include "cuda/attention.cuh"\n'
_PLAN = _INCLUDE + """
et::attention::plan<{span}, {fill}>(position, request, table, first, row_, left, pages, {split});
"""
_ROTATE = _INCLUDE + """
float* const row = worker.arena.take<float>(qkv_1 + 8*out_0*out_1 + 16*out_0);
const float norm = et::attention::add_row<qkv_0, out_0 * (out_1 + 2), out_2>(
    row, qkv, ss, {hidden}.0f, {eps}f);
et::attention::rotate<out_0, out_1, out_2, {norm}>(
    row, norm, gains, rope, out, kv, {eps}f, {scale}f);
"""
_ATTEND = _INCLUDE + """
constexpr int ROOM = 8 * q_0 * q_1 + 8 * q_1 + 16 * q_0;
float* const room = worker.arena.take<float>(8 * q_0 * q_1 + 8 * q_1 + 16 * q_0);
et::attention::attend<q_0, q_1, kv_0, kv_2, ROOM>(
    room, q, left, kv, {{all_left, all_left, all_pages, {after}, {heads} * 2 * kv_2 * q_1}}, out,
    ml);
"""
_ATTEND_CPP = """
#include "attention.h"
et::attention::attend<q_0, q_1, kv_0, kv_2>(q, left, kv, out, ml);
"""
_COMBINE = _INCLUDE + "et::attention::combine<part_1, part_2, part_3>(part, ml, out);"


def longest(span: int) -> int:
    """The most splits that a work item has."""
    return 2 * span - 1


def _rotate(x: Any, rope: Any) -> Any:
    """Heads (groups, heads, head_dim) turned by the angles of one position."""
    half = rope.shape[1]
    low, high = x[:, :, :half], x[:, :, half:]
    cos, sin = rope[0][None, None, :], rope[1][None, None, :]
    return et.concat([low * cos - high * sin, high * cos + low * sin], axis=2)


def turned(x: Any, gain: Any, rope: Any, c: ModelConfig) -> Any:
    if c.qk_norm:
        mean = (x * x).sum(axis=2, keepdims=True) / float(c.head_dim)
        x = x * et.rsqrt(mean + c.norm_eps) * gain[None, None, :]
    return _rotate(x, rope)


def _span(splits: Any, most: int, fill: int) -> Any:
    """The fewest splits, of 1, 2, 4 and so on below `most`, with which all rows together have at
    most `fill` items; else `most`."""
    found = et.full((), most, et.i32)
    for n in reversed([1 << k for k in range((most - 1).bit_length())] if fill else []):
        found = et.where(et.maximum(splits // n, 1).sum(axis=0) <= fill, n, found)
    return found


def plan_attention(split_tokens: int, most: int, fill: int = 0) -> Any:
    """Items of `most` splits, or of fewer where a step has so few rows that all their items are no
    more than `fill`."""
    @et.task(cuda=_PLAN.format(split=split_tokens, span=most, fill=fill))
    def plan(position, request, table, first, row, left, pages):
        """The work items of row t are first[t] .. first[t + 1]. A page that an item does not need
        is any of its row; items beyond the last row are 0."""
        found = find_items(position, row.shape[0], split_tokens, most, fill)
        first[:], row[:], left[:] = found.first, found.row, found.left
        pages[:] = found.pages(request, table, pages.shape[1])

    return plan


@dataclass(frozen=True)
class Items:
    """The work items of all rows, as values; `at`: the number of their first split in the row."""

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
    """`count`: of items for which there is room."""
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


def at_once(heads: int) -> str:
    """How many items or rows all workers attend at a time; read anew, for no register is free."""
    return f"(et::anew(unsigned(worker.count)) + {heads - 1}) / {heads}"


def rotate(c: ModelConfig) -> Any:
    """For some heads of keys: the queries that look at them, ready for the product with keys, and
    the row's entry of the cache, from parts of their product (`qkv`) and the row's sums of squares
    (`ss`)."""
    group, scale = c.heads // c.kv_heads, c.head_dim**-0.5
    tuned = _ROTATE.format(norm="true" if c.qk_norm else "false", eps=float(c.norm_eps),
                           scale=scale, hidden=c.hidden)

    @et.task(cuda=tuned)
    def rotate(qkv, ss, gains, rope, out, kv):
        row = qkv[0]
        for k in range(1, int(qkv.shape[0])):
            row = row + qkv[k]
        heads = (row * norm_scale(ss, c)).reshape(out.shape[0], group + 2, c.head_dim)
        out[:] = turned(heads[:, :group], gains[0], rope, c) * scale
        key = turned(heads[:, group : group + 1], gains[1], rope, c)
        kv[:] = et.concat([key, heads[:, group + 1 :]], axis=1)

    return rotate


def attend(dtype: Any, heads: int) -> Any:
    """`heads`: of keys, that an item is attended for, one after the other."""
    tuned = _ATTEND.format(heads=heads, after=at_once(heads)) if dtype is et.bf16 else None

    @et.task(cuda=tuned, cpp=_ATTEND_CPP)
    def attend(q, left, kv, all_left, all_pages, out, ml):
        """`all_left` and `all_pages` tell of this item and those after it, so that these can be
        brought nearer."""
        out[:], ml[:] = softmax(q, left, kv, dtype)

    return attend


def softmax(
    q: Any, left: Any, kv: Any, dtype: Any, held: Any = None, fresh: Any = None
) -> tuple[Any, Any]:
    """Over one item, unnormalised: the largest score and the sum go beside it. Nobody has written
    the tokens beyond `left`: whatever lies there has no part in it. Token number `held` has the key
    and the value `fresh`, if they are given."""
    pages, _, each, width = kv.shape
    tokens = pages * each
    there = et.iota(tokens) < left
    keys, values = kv[:, 0].reshape(tokens, width), kv[:, 1].reshape(tokens, width)
    if fresh is not None:
        new = (et.iota(tokens) == held)[:, None]
        keys = et.where(new, fresh[0][None, :], keys).cast(dtype)
        values = et.where(new, fresh[1][None, :], values)
    known = et.where(there[:, None], values, 0.0).cast(dtype)
    score = et.where(there[None, :], q @ keys.T, -1e30)
    top = score.max(axis=1, keepdims=True)
    weight = et.exp(score - top)
    sums = et.concat([top.T, weight.sum(axis=1, keepdims=True).T], axis=0)
    return weight.cast(dtype) @ known, sums


@et.task(cuda=_COMBINE)
def combine(part, ml, out):
    """Of all items of a row, for some heads of keys."""
    top = ml[:, :, 0].max(axis=0, keepdims=True)
    scale = et.exp(ml[:, :, 0] - top)
    total = (scale * ml[:, :, 1]).sum(axis=0)
    mixed = (part * scale[:, :, :, None]).sum(axis=0) / total[:, :, None]
    out[:] = mixed.reshape(out.shape[0])
