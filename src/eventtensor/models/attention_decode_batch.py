"""Attention in a kernel for steps in which every row has a request of its own, on a GPU. Who
attends turns its queries itself and takes the row's own key and value from the projection; the
cache gets them when all layers are done. A row of one item is mixed by who attends it: so where all
rows are, no task stands before attention, nor behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from ..targets.h200 import H200
from .attention import at_once, find_items, softmax, turned
from .attention_block import AttentionBlock, kv_heads_per_task, page_tokens
from .attention_mixed import fits_kv_pipeline, reduce_floats
from .decoder_tasks import norm_scale
from .model_config import ModelConfig
from .step import MAX_REQUESTS, MAX_TOKENS, Step, cut

AT_ONCE = (1, 2, 4)  # heads of keys
ROOM = 64 * 1024  # bytes that several of them may take: what lines of x have with many rows

# For a GPU, of device/cuda/attention_decode_batch.cuh; `arrive()` returns when qkv and ss are
# there.
_INCLUDE = '#include "cuda/attention_decode_batch.cuh"\n'
_PLAN = _INCLUDE + """
et::attention::plan<{span}, {fill}>(position, request, table, first, row_, left, pages, {split});
et::attention::place_items(position, first, row_, left, held, turn, ends, lone, several);
"""
_ATTEND = _INCLUDE + """
float* const room = worker.arena.take<float>({room});
const int64_t next = et::tile_ahead(worker);
return et::attention::attend_decode<qkv_0, out_0, out_1, out_2, kv_3, {heads}, {room}, {norm}>(
    worker, et::idle_memory(worker), room, {{{heads} / out_0 * w + g, next}}, qkv, ss, gains, rope,
    left, held, kv, {{all_left, all_held, all_pages, {after}, {heads} * 2 * kv_3 * out_2}},
    out, ml, mixed, own, {{{hidden}.0f, {eps}f, {scale}f}}, arrive);
"""
_APPEND = _INCLUDE + "et::attention::append_all<own_0, own_1, own_3>(own, kv);"


@dataclass(frozen=True)
class DecodeVariant:
    """A kernel of a GPU in which rows attend so: from `least` rows on up to `most`. A task has
    `heads` heads of keys at once, as many as let all workers begin with all rows at the same time:
    what comes between two tasks is lost."""

    least: int
    most: int
    heads: int


def decode_variants(
    c: ModelConfig, workers: int = H200.multiprocessors
) -> tuple[DecodeVariant, ...]:
    """The kernels of a model; none, if keys do not flow (attention_mixed.py)."""
    group = c.heads // c.kv_heads
    if c.kv_heads > workers or not fits_kv_pipeline(group, c.head_dim, page_tokens(c)):
        return ()
    found: list[DecodeVariant] = []
    fit = (n for n in AT_ONCE if n == 1 or 4 * room_floats(c, n) <= ROOM)
    sizes = [n for n in fit if c.kv_heads % n == 0]
    for heads in sizes:
        least = found[-1].most + 1 if found else 1
        most = MAX_REQUESTS if heads == sizes[-1] else heads * workers // c.kv_heads
        if least <= MAX_REQUESTS:
            found.append(DecodeVariant(least, min(most, MAX_REQUESTS), heads))
    return tuple(found)


def decode_variant(c: ModelConfig, rows: int) -> DecodeVariant:
    """The kernel that takes so many rows."""
    found = next((a for a in decode_variants(c) if rows <= a.most), None)
    assert found is not None, f"no kernel attends so to {rows} rows"
    return found


def room_floats(c: ModelConfig, heads: int) -> int:
    """Where the parts of so many heads of keys meet; of several what is turned lies behind them."""
    group = c.heads // c.kv_heads
    behind = heads * (group + 2) * (c.head_dim + 8) // 2 if heads > 1 else 0
    return reduce_floats(group, c.head_dim, heads) + behind


def plan_decode(split_tokens: int, most: int, fill: int) -> Any:
    """As `plan_attention`, and for each item: the tokens that the cache has, all but the row's own,
    which is in its last item; the row's position; and what it gives of the rows, from its number in
    two lists up to the next one. In `ends` the last item of a row has it; in `lone` every item has
    one if no row has several. `several`: how many rows are to be combined, all or none."""
    @et.task(cuda=_PLAN.format(split=split_tokens, span=most, fill=fill))
    def plan(position, request, table, first, row, left, pages, held, turn, ends, lone, several):
        count, rows = row.shape[0], position.shape[0]
        found = find_items(position, count, split_tokens, most, fill)
        first[:], row[:], left[:] = found.first, found.row, found.left
        pages[:] = found.pages(request, table, pages.shape[1])
        last = et.gather(found.first, found.row + 1) == et.iota(count) + 1
        held[:] = found.left - last.cast(et.i32)
        turn[:] = et.gather(position, found.row)
        own = et.where(found.used, found.row, rows)
        ends[:] = et.concat([own, et.full((1,), rows, et.i32)], axis=0)
        each = found.first[rows] <= rows
        lone[:] = et.where(each, et.minimum(et.iota(count + 1), rows), 0)
        several[:] = et.where(each, 0, rows).cast(et.i32).reshape(1)

    return plan


def attend_decode(c: ModelConfig, dtype: Any, some: int) -> Any:
    """As `attend_mixed` for some heads of keys, from the parts of the projection; `held` tokens are
    in the cache."""
    group, scale = c.heads // c.kv_heads, c.head_dim**-0.5
    tuned = _ATTEND.format(
        heads=c.kv_heads, room=room_floats(c, some), after=at_once(c.kv_heads),
        norm="true" if c.qk_norm else "false", hidden=c.hidden, eps=float(c.norm_eps), scale=scale)

    @et.task(cuda=tuned)
    def attend(
        qkv, ss, gains, rope, left, held, kv, all_left, all_held, all_pages, all_kv, out, ml, mixed,
        own
    ):
        row = qkv[0]
        for k in range(1, int(qkv.shape[0])):
            row = row + qkv[k]
        heads = (row * norm_scale(ss, c)).reshape(some, group + 2, c.head_dim)
        q = (turned(heads[:, :group], gains[0], rope, c) * scale).cast(dtype)
        key = turned(heads[:, group : group + 1], gains[1], rope, c).cast(dtype)
        value = heads[:, group + 1 :].cast(dtype)
        fresh = et.concat([key, value], axis=1)
        own[:] = fresh[None, :, :, :]
        wide = group * c.head_dim
        for k in range(some):
            found, sums = softmax(q[k], left, kv[:, k], dtype, held, fresh[k])
            out[k], ml[k] = found, sums
            mixed[:, k * wide : (k + 1) * wide] = \
                (found / sums[1][:, None]).reshape(1, wide).cast(dtype)

    return attend


@et.task(cuda=_APPEND)
def append(own, kv):
    """A row's keys and values of some heads, in all layers."""
    kv[:] = own


class BatchDecodeAttention(AttentionBlock):
    """The first half of each layer for rows that have a request each; so many heads of keys are
    attended at once."""

    def __init__(self, step: Step, span: int, alike: bool, heads: int) -> None:
        super().__init__(step, span, alike)
        self.heads = heads
        self.some = kv_heads_per_task(step.c, step.weights.layout, MAX_TOKENS)

    def rows(self) -> None:
        """What items give of them: the row's own key and value, and all of it if it is alone."""
        c, p, T, W, dtype = self.step.c, self.step.p, self.step.T, self.W, self.step.weights.dtype
        self.held = p.scratch("held", (W,), et.i32)
        self.turn = p.scratch("turn", (W,), et.i32, bound=self.rope.shape[0] - 1)
        self.ends, self.lone = (p.scratch(n, (W + 1,), et.i32, bound=T, monotone=True)
                                for n in ("ends", "lone"))
        self.several = p.scratch("several", (1,), et.i32, bound=T)
        self.own = p.scratch("own", (c.layers, T, c.kv_heads, 2, c.head_dim), dtype)
        self.mixed = p.scratch("mixed", (c.layers, T, c.heads * c.head_dim), dtype)
        # One event of attention for all that comes behind it.
        self.planned = p.events("planned", ())
        self.attended, self.combined = (p.events(n, (c.layers,)) for n in ("attended", "combined"))

    def calls(self, at: Any) -> None:
        self._project(at)
        self.attend(at)
        self.out.calls(at, self._source(at),
                       (self.planned[()], self.combined[at], self.attended[at]))

    def plan(self) -> None:
        self.step.p.call(
            plan_decode(self.split, self.span, self.fill), grid=(),
            reads=lambda: (self.position[:], self.request[:], self.table[:, :, :]),
            writes=lambda: (self.first[:], self.row[:], self.left[:], self.item_pages[:, :],
                            self.held[:], self.turn[:], self.ends[:], self.lone[:],
                            self.several[:]),
            notifies=lambda: self.planned[()])

    def attend(self, at: Any) -> None:
        step, c, W, row, ends, lone = (self.step, self.step.c, self.W, self.row, self.ends,
                                       self.lone)
        some, group = self.heads, c.heads // c.kv_heads
        words = some * (group + 2) * c.head_dim
        step.p.call(
            attend_decode(c, step.weights.dtype, some), name="attend",
            grid=(self.first[step.T], c.kv_heads // some),
            reads=lambda w, g: (
                self.qkv[at, :, row[w], cut(g, words)], step.attn.ss[at, row[w], :],
                self.qk_gains[at, :, :], self.rope[self.turn[w], :, :], self.left[w], self.held[w],
                self.kv[at, self.item_pages[w, :], cut(g, some), :, :, :], self.left[w:W],
                self.held[w:W], self.item_pages[w:W, :], self.kv[at, :, :, :, :, :]),
            writes=lambda w, g: (
                self.part[at, w, cut(g, some), :, :], self.part_ml[at, w, cut(g, some), :, :],
                self.mixed[at, lone[w] : lone[w + 1], cut(g, some * group * c.head_dim)],
                self.own[at, ends[w] : ends[w + 1], cut(g, some), :, :]),
            notifies=lambda w, g: self.attended[at])
        self.combine(at, self.several[0], waits=lambda t, g: (self.planned[()], self.attended[at]),
                     notifies=lambda t, g: self.combined[at])

    def append(self) -> None:
        """After the last layer."""
        step, c, slot, page, some = self.step, self.step.c, self.slot, self.page, self.heads
        step.p.call(
            append, grid=(step.T, c.kv_heads // some),
            reads=lambda t, g: self.own[:, t, cut(g, some), :, :],
            writes=lambda t, g: self.kv[:, slot[t] // page, cut(g, some), :, slot[t] % page, :],
            waits=lambda t, g: (self.planned[()], self.attended[c.layers - 1]))
