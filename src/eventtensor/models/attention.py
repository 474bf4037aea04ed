"""Attention over a paged cache: rows are split by tokens, parts of a row are folded afterwards, so
that what a row gives depends on its own length alone. A work item is one split of a row or, where
there are many, a group of them; tuned bodies add by splits and groups either way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from .config import ModelConfig

# Bodies for a GPU, of device/cuda/attention.cuh. `q_1` is the extent of axis 1 of q.
_INCLUDE = '#include "cuda/attention.cuh"\n'
_PLAN = _INCLUDE + """
et::attention::plan(position, request, table, first, span, row_, left, pages,
                    {split}, {most}, {many});
"""
_ROTATE = _INCLUDE + """
et::attention::rotate<out_0, out_1, {norm}>(qkv, gains, rope, out, kv, {eps}f, {scale}f);
"""
_ATTEND = _INCLUDE + """
constexpr int ROOM = 8 * q_0 * q_1 + 8 * q_1 + 17 * q_0;
float* const room = worker.arena.take<float>(8 * q_0 * q_1 + 8 * q_1 + 17 * q_0);
et::attention::attend<q_0, q_1, kv_0 / {longest} * kv_2, kv_2, ROOM>(room, q, left, kv, out, ml);
"""
_ATTEND_CPP = """
#include "attention.h"
et::attention::attend<q_0, q_1, kv_0, kv_2>(q, left, kv, out, ml);
"""
_COMBINE = _INCLUDE + "et::attention::combine<part_1, part_2, part_3, {most}>(part, ml, span, out);"


@dataclass(frozen=True)
class Spans:
    """How many splits of a row a work item has: `most` if all rows have `many` splits or more, else
    one. What would be too little for another item belongs to the last of the row."""

    most: int = 1
    many: int = 0

    @property
    def longest(self) -> int:
        return 2 * self.most - 1


def _rotate(x: Any, rope: Any) -> Any:
    """Rows (heads, head_dim) turned by the angles of one position."""
    half = rope.shape[1]
    low, high, cos, sin = x[:, :half], x[:, half:], rope[0][None, :], rope[1][None, :]
    return et.concat([low * cos - high * sin, high * cos + low * sin], axis=1)


def _turned(x: Any, gain: Any, rope: Any, c: ModelConfig) -> Any:
    if c.qk_norm:
        mean = (x * x).sum(axis=1, keepdims=True) / float(c.head_dim)
        x = x * et.rsqrt(mean + c.norm_eps) * gain[None, :]
    return _rotate(x, rope)


def plan_attention(split_tokens: int, spans: Spans) -> Any:
    @et.task(cuda=_PLAN.format(split=split_tokens, most=spans.most, many=spans.many))
    def plan(position, request, table, first, span, row, left, pages):
        """The work items of row t are first[t] .. first[t + 1]. A page that an item does not need
        is any of its row; items beyond the last row are 0."""
        _, room, each = table.shape
        splits = position // split_tokens + 1
        many = splits.sum(axis=0, keepdims=True) >= spans.many
        step = et.where(many, spans.most, 1)
        counts = et.where(many, et.maximum(splits // spans.most, 1), splits)
        ends = counts.cumsum(0)
        first[:] = et.concat([et.zeros((1,), et.i32), ends], axis=0)
        span[:] = step
        item = et.iota(row.shape[0])
        before = (item[:, None] >= ends[None, :]).cast(et.i32).sum(axis=1)
        used, mine = before < ends.shape[0], et.minimum(before, ends.shape[0] - 1)
        nth = et.maximum(item - et.gather(ends - counts, mine), 0)
        row[:] = et.where(used, mine, 0)
        rest = et.gather(position, mine) + 1 - nth * step * split_tokens
        last = nth + 1 == et.gather(counts, mine)
        left[:] = et.where(used, et.where(last, rest, step * split_tokens), 0)
        at = (nth * step * each)[:, None] + et.iota(pages.shape[1])[None, :]
        held = et.gather(request, mine)[:, None] * (room * each) + et.minimum(at, room * each - 1)
        flat = table.reshape(table.shape[0] * room * each)
        pages[:] = et.where(used[:, None], et.gather(flat, held), 0)

    return plan


def rotate(c: ModelConfig) -> Any:
    """Queries of a group, ready for the product with keys, and the row's entry of the cache."""
    group, scale = c.heads // c.kv_heads, c.head_dim**-0.5
    norm = "true" if c.qk_norm else "false"

    @et.task(cuda=_ROTATE.format(norm=norm, eps=float(c.norm_eps), scale=scale))
    def rotate(qkv, gains, rope, out, kv):
        heads = qkv.reshape(group + 2, c.head_dim)
        out[:] = _turned(heads[:group], gains[0], rope, c) * scale
        key = _turned(heads[group : group + 1], gains[1], rope, c)
        kv[:] = et.concat([key, heads[group + 1 :]], axis=0)

    return rotate


def attend(dtype: Any, spans: Spans) -> Any:
    tuned = _ATTEND.format(longest=spans.longest) if dtype is et.bf16 else None

    @et.task(cuda=tuned, cpp=_ATTEND_CPP)
    def attend(q, left, kv, out, ml):
        """Softmax over one item, unnormalised: the largest score and the sum go beside it. Nobody
        has written the tokens beyond `left`: whatever lies there has no part in it."""
        pages, _, each, width = kv.shape
        tokens = pages * each
        there = et.iota(tokens) < left
        keys = kv[:, 0].reshape(tokens, width)
        known = et.where(there.reshape(pages, each, 1), kv[:, 1], 0.0)
        values = known.cast(dtype).reshape(tokens, width)
        score = et.where(there[None, :], q @ keys.T, -1e30)
        top = score.max(axis=1, keepdims=True)
        weight = et.exp(score - top)
        out[:] = weight.cast(dtype) @ values
        ml[:] = et.concat([top.T, weight.sum(axis=1, keepdims=True).T], axis=0)

    return attend


def combine(spans: Spans) -> Any:
    @et.task(cuda=_COMBINE.format(most=spans.most))
    def combine(part, ml, span, out):
        """Of all items of a row, for some heads of keys. Whether they are splits or groups, `span`,
        is for tuned bodies."""
        top = ml[:, :, 0].max(axis=0, keepdims=True)
        scale = et.exp(ml[:, :, 0] - top)
        total = (scale * ml[:, :, 1]).sum(axis=0)
        mixed = (part * scale[:, :, :, None]).sum(axis=0) / total[:, :, None]
        out[:] = mixed.reshape(out.shape[0])

    return combine
