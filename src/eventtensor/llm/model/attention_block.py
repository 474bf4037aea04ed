"""The attention block of each layer: its tensors, the paged KV cache, and its calls. Subclasses are
in attention_decode_batch.py and attention_decode_single.py; the bodies are in attention.py."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ...targets.cost_model import AttentionCosts
from ...targets.devices import DEFAULT_DEVICE
from .attention import apply_rope, attend, combine, max_item_splits, plan_attention
from .attention_mixed import attend_mixed, fits_kv_pipeline
from .decoder_tasks import Weights, multiply
from .model_config import ModelConfig
from .residual_projection import ResidualProjection, Source
from .step import Step, cut
from .step_limits import MAX_REQUESTS
from .tile_sizes import Layout

PAGE_BYTES = 16384  # keys and values of one head in a page of the cache
SPLIT_TOKENS = 128  # of attention: the result depends on it, whatever the batch
MAX_SPLITS_PER_ITEM = 8  # the result depends on it as well


def span_for(weights: Weights, tokens: int) -> int:
    """The most splits of a task of attention. A single token has too few splits for the workers of
    a GPU, so each split is a task. With more tokens a task takes several and loads the next one
    while it computes."""
    many = weights.layout != "cpu" and weights.dtype is et.bf16 and tokens > 1
    return MAX_SPLITS_PER_ITEM if many else 1


def kv_heads_per_task(
    c: ModelConfig, layout: Layout, tokens: int, workers: int = DEFAULT_DEVICE.multiprocessors
) -> int:
    """KV heads of a task of `apply_rope` or `combine` at most: one, or up to four if a full step
    has more tokens times heads than the GPU has workers."""
    if layout == "cpu":
        return 1
    sizes = [n for n in (1, 2, 4) if c.kv_heads % n == 0]
    return next((n for n in sizes if n * workers >= tokens * c.kv_heads), sizes[-1])


def kv_heads_per_combine(
    c: ModelConfig, some: int, costs: AttentionCosts = DEFAULT_DEVICE.costs.attention
) -> int:
    """KV heads of a task of `combine`: `some`, or fewer, so that all loads of a thread are in
    flight together. Half a token is the aim: 64 tokens then give each worker a task."""
    half = c.heads * c.head_dim // 2
    elements = min(max(costs.min_combine_elements, half), costs.max_combine_elements)
    return _part_of(some, elements // (c.heads // c.kv_heads * c.head_dim))


def kv_heads_per_rope(
    c: ModelConfig, some: int, parts: int,
    costs: AttentionCosts = DEFAULT_DEVICE.costs.attention,
) -> int:
    """KV heads of a task of `apply_rope`: `some`, or fewer if their outputs or the split-K parts
    have too many words."""
    words = min(costs.max_rope_words, costs.max_rope_part_words // parts)
    return _part_of(some, words // ((c.heads // c.kv_heads + 2) * c.head_dim))


def _part_of(some: int, most: int) -> int:
    """The largest part of 4, 2 or 1 heads that is no more than `most`; at least one."""
    return next((n for n in (4, 2) if some % n == 0 and n <= most), 1)


def page_tokens(config: ModelConfig) -> int:
    """Tokens of a page of the KV cache."""
    return max(1, PAGE_BYTES // (2 * config.head_dim * 2))


class AttentionBlock:
    """The attention block of each layer and the KV cache. A task of `attend` takes `span` splits,
    or fewer where a step has too few items for the workers of a GPU. `alike` forbids that, so that
    a token gets the same bits in all steps."""

    def __init__(self, step: Step, span: int, alike: bool) -> None:
        c, p, T, page = step.c, step.p, step.num_tokens, page_tokens(step.c)
        dtype, hd, group = step.weights.dtype, c.head_dim, c.heads // c.kv_heads
        per_split = max(1, SPLIT_TOKENS // page)
        self.step, self.span, self.page, self.split = step, span, page, per_split * page
        self.some = kv_heads_per_task(c, step.weights.layout, step.tokens,
                                      step.target.multiprocessors)
        self.fill = 0 if alike or span == 1 else step.target.multiprocessors // c.kv_heads
        R, M = et.dim("R", max=MAX_REQUESTS), et.dim("M", max=65536)
        self.pages = pages = et.dim("pages", max=1 << 22)
        positions = et.dim("positions", max=1 << 20)
        self.position = p.input("position", (T,), et.i32, bound=positions - 1)
        self.request = p.input("request", (T,), et.i32, bound=R - 1)
        self.slot = p.input("slot", (T,), et.i32, bound=pages * page - 1, distinct=True)
        self.table = p.input("table", (R, M, per_split), et.i32, bound=pages - 1)
        self.rope = p.weight("rope", (positions, 2, hd // 2), et.f32)
        self.qk_gains = p.weight("qk_gains", (c.layers, 2, hd), et.f32)
        self.w_qkv = step.weights.matrix(p, c, "w_qkv")
        w_o = step.weights.matrix(p, c, "w_o")
        self.kv = p.state("kv", (c.layers, pages, c.kv_heads, 2, page, hd), dtype)
        # For each KV head: its query heads, the key and the value.
        self.qkv = p.scratch("qkv", self._qkv_shape(c.kv_heads * (group + 2) * hd), et.f32)
        self.out = ResidualProjection(step, "out", w_o, step.tiles.out, step.tiles.out_parts,
                                      sublayer=0)
        self.declare_items()

    def declare_items(self) -> None:
        """Declares what passes between the tasks of attention: the work items."""
        c, p, T, span = self.step.c, self.step.p, self.step.num_tokens, self.span
        hd, group = c.head_dim, c.heads // c.kv_heads
        self.W = W = et.dim("W", max=1 << 20)
        self.first = p.scratch("first", (T + 1,), et.i32, bound=W, monotone=True)
        p.fact(self.first[T] >= 1)
        self.row = p.scratch("row", (W,), et.i32, bound=T - 1)
        self.left = p.scratch("left", (W,), et.i32)
        item_pages = max_item_splits(span) * (self.split // self.page)
        self.item_pages = p.scratch("item_pages", (W, item_pages), et.i32, bound=self.pages - 1)
        self.part = p.scratch("part", (c.layers, W, c.kv_heads, group, hd), et.f32)
        self.part_ml = p.scratch("part_ml", (c.layers, W, c.kv_heads, 2, group), et.f32)
        self.declare_outputs()

    def declare_outputs(self) -> None:
        """Declares queries after RoPE, and the result of each token."""
        c, p, T, dtype = self.step.c, self.step.p, self.step.num_tokens, self.step.weights.dtype
        self.q = p.scratch("q", (c.layers, T, c.kv_heads, c.heads // c.kv_heads, c.head_dim), dtype)
        self.mixed = p.scratch("mixed", (c.layers, T, c.heads * c.head_dim), dtype)

    def add_plan(self) -> None:
        """Calls the task that computes the work items of the step."""
        self.step.p.call(
            plan_attention(self.split, self.span, self.fill), grid=(),
            reads=lambda: (self.position[:], self.request[:], self.table[:, :, :]),
            writes=lambda: (self.first[:], self.row[:], self.left[:], self.item_pages[:, :]))

    def add_calls(self, at: Any) -> None:
        self._project(at)
        self.attend(at)
        self.out.add_calls(at, self._source(at))

    def _source(self, at: Any) -> Source:
        """The result of attention, as the split-K operand of the output projection."""
        wide = self.step.c.heads * self.step.c.head_dim
        return lambda s, n: self.mixed[at, 0 : self.step.num_tokens, cut(s, wide // n)]

    def append(self) -> None:
        """Nothing to do: `apply_rope` has written the cache."""

    def _qkv_shape(self, columns: int) -> tuple[Any, ...]:
        """The projection has split-K parts, without the scale of the norm."""
        return (self.step.c.layers, self.step.tiles.qkv_parts, self.step.num_tokens, columns)

    def _project(self, at: Any) -> None:
        step, w, tile, parts = self.step, self.w_qkv, self.step.tiles.qkv, self.step.tiles.qkv_parts
        each = step.c.hidden // parts
        step.p.call(
            multiply(step.weights), name="qkv_proj", grid=(w.tiles(tile), parts),
            reads=lambda i, s: (step.attn.x[at, :, cut(s, each)], w.part(at, i, tile, s, parts)),
            writes=lambda i, s: self.qkv[at, s, :, cut(i, tile)])

    def _apply_rope(self, at: Any) -> None:
        """Writes queries, and keys and values into the cache."""
        step, c, slot, page = self.step, self.step.c, self.slot, self.page
        some = kv_heads_per_rope(c, self.some, step.tiles.qkv_parts)
        words = some * (c.heads // c.kv_heads + 2) * c.head_dim
        step.p.call(
            apply_rope(c), grid=(step.num_tokens, c.kv_heads // some),
            reads=lambda t, g: (self.qkv[at, :, t, cut(g, words)], step.attn.ss[at, t, :],
                                self.qk_gains[at, :, :], self.rope[self.position[t], :, :]),
            writes=lambda t, g: (
                self.q[at, t, cut(g, some), :, :],
                self.kv[at, slot[t] // page, cut(g, some), :, slot[t] % page, :]))

    def attend(self, at: Any) -> None:
        """The heads of one task of `apply_rope` or `combine` are an axis of this grid, so that one
        event covers them."""
        self._apply_rope(at)
        step, c, first, W = self.step, self.step.c, self.first, self.W
        group, some = c.heads // c.kv_heads, kv_heads_per_combine(c, self.some)
        many = self.span > 1 and fits_kv_pipeline(group, c.head_dim, self.page)
        rest = (self.kv[at, :, :, :, :, :],) if many else ()  # the next tasks have parts of it
        dtype, kv_heads, tile = step.weights.dtype, c.kv_heads, f"{c.kv_heads} * w + {some} * g + k"
        step.p.call(
            attend_mixed(dtype, kv_heads, group, c.head_dim, tile) if many
            else attend(dtype, kv_heads),
            grid=(first[step.num_tokens], kv_heads // some, some),
            reads=lambda w, g, k: (self.q[at, self.row[w], g * some + k, :, :], self.left[w],
                                   self.kv[at, self.item_pages[w, :], g * some + k, :, :, :],
                                   self.left[w:W], self.item_pages[w:W, :], *rest),
            writes=lambda w, g, k: (self.part[at, w, g * some + k, :, :],
                                    self.part_ml[at, w, g * some + k, :, :]))
        self.combine(at, step.num_tokens)

    def combine(self, at: Any, rows: Any, **events: Any) -> None:
        """Combines the items of each of `rows` tokens."""
        c, first, some = self.step.c, self.first, kv_heads_per_combine(self.step.c, self.some)
        wide = some * c.heads // c.kv_heads * c.head_dim
        self.step.p.call(
            combine, grid=(rows, c.kv_heads // some),
            reads=lambda t, g: (self.part[at, first[t] : first[t + 1], cut(g, some), :, :],
                                self.part_ml[at, first[t] : first[t + 1], cut(g, some), :, :]),
            writes=lambda t, g: self.mixed[at, t, cut(g, wide)], **events)
