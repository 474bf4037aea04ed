"""The decode step of Llama and Qwen3 models as one program: embedding, every layer, the head and
the choice of tokens. A row is (request, position), so decoding and chunks of a prompt are the same.
A token is chosen for each of the first S rows; P more only fill the cache.

Activations go from task to task with the gain of the next norm already in them, and each tile gives
the sum of its squares beside: whoever reads them applies the scale of the norm to its product. With
one row, who multiplies adds to the residual. With many, tasks take large tiles and a part of K, so
that x is read less often, and others add the parts up.
"""

from __future__ import annotations

from dataclasses import dataclass

import eventtensor as et

from ..ir.products import PANEL
from ..target import H200
from .attention import attend, combine, longest, plan_attention, rotate
from .config import ModelConfig
from .pack import Layout
from .residual import PIECE_SUMS, PIECES, Level, Residual
from .sampling import Draws
from .tasks import (
    Weights,
    choose,
    embed,
    gate_up,
    head,
    head_and_tops,
    project,
)

PAGE_BYTES = 16384  # keys and values of one head in a page of the cache
SPLIT_TOKENS = 128  # of attention: part of the result, whatever the batch
GROUP_SPLITS = 8  # which one task takes where there are many: part of the result as well
ROTATED_WORDS = 3072  # of a task of rotate
WIDE_ROWS, PART_COLUMNS = 128, 128  # that products with many columns take at a time
MAX_TOKENS, MAX_REQUESTS = 128, 64


@dataclass(frozen=True)
class Tiles:
    """Rows of weights that one task takes, for each matrix, and into how many parts of K the
    matrices are cut that add to the residual."""

    qkv: int
    out: int  # of the two that add to the residual
    gate_up: int
    head: int
    out_parts: int = 1
    down_parts: int = 1


def tiles_for(
    c: ModelConfig, layout: Layout, many: bool = False, workers: int = H200.multiprocessors
) -> Tiles:
    """On a GPU a tile a worker, as far as matrices can be cut so: each task pays for its hop and
    its fold. Threads take what a cache holds. The head has no hop: pieces without a long tail.
    With many rows a tile of the residual's is up to WIDE_ROWS, whose x the workers of a GPU read
    once: there are as many parts of K as give each of them a task."""
    qkv, hidden = (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden

    def least(rows: int, step: int) -> int:
        """The smallest tile of which there are at most as many as workers."""
        sizes = range(step, rows + 1, step)
        return next(r for r in sizes if rows % r == 0 and rows // r <= workers)

    def most(rows: int, step: int, top: int) -> int:
        return max(r for r in range(step, min(rows, top) + 1, step) if rows % r == 0)

    def parts(tiles: int, columns: int) -> int:
        fit = (n for n in range(1, workers // tiles + 1) if columns % (n * PART_COLUMNS) == 0)
        return max(fit, default=1)

    if layout == "cuda" and many:
        out = most(hidden, PANEL, WIDE_ROWS)
        tiles = hidden // out
        return Tiles(least(qkv, PANEL), out, least(2 * c.intermediate, 2 * PANEL),
                     most(c.vocab, PANEL, WIDE_ROWS),
                     parts(tiles, c.heads * c.head_dim), parts(tiles, c.intermediate))
    if layout == "cuda":
        return Tiles(least(qkv, PANEL), least(hidden, PANEL), least(2 * c.intermediate, 2 * PANEL),
                     most(c.vocab, PANEL, 16 * PANEL))
    return Tiles(most(qkv, PANEL, 64), most(hidden, PANEL, 64),
                 most(2 * c.intermediate, 2 * PANEL, 128), most(c.vocab, PANEL, 256))


def span_for(weights: Weights, tokens: int) -> int:
    """Splits of a row that a task of attention takes. A single row has too few for all workers of a
    GPU: each is a task. With more rows a task takes several, and reads the next while it computes;
    how many rows a step has does not change it, so a row's bits do not hang on that."""
    many = weights.layout == "cuda" and weights.dtype is et.bf16 and tokens > 1
    return GROUP_SPLITS if many else 1


def combined_heads(
    c: ModelConfig, layout: Layout, tokens: int, workers: int = H200.multiprocessors
) -> int:
    """Heads of keys that a task of `combine` takes: one, or up to four if a full step has more
    rows and heads than a GPU has workers."""
    if layout != "cuda":
        return 1
    sizes = [n for n in (1, 2, 4) if c.kv_heads % n == 0]
    return next((n for n in sizes if n * workers >= tokens * c.kv_heads), sizes[-1])


def rotated_heads(c: ModelConfig, some: int) -> int:
    """Heads of keys that a task of `rotate` takes: `some`, if what it needs may come by flags."""
    return some if some * (c.heads // c.kv_heads + 2) * c.head_dim <= ROTATED_WORDS else 1


def page_tokens(config: ModelConfig) -> int:
    return max(1, PAGE_BYTES // (2 * config.head_dim * 2))


def llama(
    config: ModelConfig, weights: Weights, tiles: Tiles | None = None, tokens: int = MAX_TOKENS,
    sampling: bool = False, span: int | None = None,
) -> et.Program:
    span = span or span_for(weights, tokens)
    tiles = tiles or tiles_for(config, weights.layout, span > 1)
    c, dtype, page = config, weights.dtype, page_tokens(config)
    some = combined_heads(c, weights.layout, tokens)
    turned = rotated_heads(c, some)
    hd, group, wide = c.head_dim, c.heads // c.kv_heads, c.heads * c.head_dim
    S, P = et.dim("S", max=min(tokens, MAX_REQUESTS)), et.dim("P", min=0, max=tokens - 1)
    T = S + P
    R, M = et.dim("R", max=MAX_REQUESTS), et.dim("M", max=65536)
    pages, W = et.dim("pages", max=1 << 22), et.dim("W", max=1 << 20)
    positions = et.dim("positions", max=1 << 20)
    p = et.Program(f"{c.family}_{c.layers}x{c.hidden}")

    token = p.input("token", (T,), et.i32, bound=c.vocab - 1)
    position = p.input("position", (T,), et.i32, bound=positions - 1)
    request = p.input("request", (T,), et.i32, bound=R - 1)
    slot = p.input("slot", (T,), et.i32, bound=pages * page - 1, distinct=True)
    per_split = max(1, SPLIT_TOKENS // page)
    table = p.input("table", (R, M, per_split), et.i32, bound=pages - 1)
    rope = p.weight("rope", (positions, 2, hd // 2), et.f32)
    gains = p.weight("gains", (2 * c.layers + 1, c.hidden), et.f32)
    qk_gains = p.weight("qk_gains", (c.layers, 2, hd), et.f32)
    rows_in = p.weight("embed", (c.vocab, c.hidden), dtype)
    w_qkv = weights.matrix(p, "w_qkv", (c.heads + 2 * c.kv_heads) * hd, c.hidden, c.layers)
    w_o = weights.matrix(p, "w_o", c.hidden, wide, c.layers)
    w_gate_up = weights.matrix(p, "w_gate_up", 2 * c.intermediate, c.hidden, c.layers)
    w_down = weights.matrix(p, "w_down", c.hidden, c.intermediate, c.layers)
    w_head = weights.matrix(p, "head", c.vocab, c.hidden)
    kv = p.state("kv", (c.layers, pages, c.kv_heads, 2, page, hd), dtype)
    logits = p.output("logits", (S, c.vocab), et.f32)
    chosen = p.output("chosen", (S,), et.i32)

    # Each layer has its own: no task waits for memory, and elements may carry flags.
    h_attn = p.scratch("h_attn", (c.layers + 1, T, c.hidden), et.f32)
    h_mlp = p.scratch("h_mlp", (c.layers, T, c.hidden), et.f32)
    in_parts, head_tiles = max(tiles.out_parts, tiles.down_parts) > 1, w_head.tiles(tiles.head)
    norm_tiles = PIECES * PIECE_SUMS if in_parts else w_o.tiles(tiles.out)
    x_attn = p.scratch("x_attn", (c.layers + 1, T, c.hidden), dtype)
    ss_attn = p.scratch("ss_attn", (c.layers + 1, T, norm_tiles), et.f32)
    x_mlp = p.scratch("x_mlp", (c.layers, T, c.hidden), dtype)
    ss_mlp = p.scratch("ss_mlp", (c.layers, T, norm_tiles), et.f32)
    # For each head of keys: the queries that look at it, the key and the value.
    qkv = p.scratch("qkv", (c.layers, T, c.kv_heads * (group + 2) * hd), et.f32)
    mixed = p.scratch("mixed", (c.layers, T, wide), dtype)
    act = p.scratch("act", (c.layers, T, c.intermediate // PANEL, PANEL), dtype)
    # Work items of attention, found on the device from the positions.
    first = p.scratch("first", (T + 1,), et.i32, bound=W, monotone=True)
    row = p.scratch("row", (W,), et.i32, bound=T - 1)
    left = p.scratch("left", (W,), et.i32)
    item_pages = p.scratch("item_pages", (W, longest(span) * per_split), et.i32, bound=pages - 1)
    q = p.scratch("q", (c.layers, T, c.kv_heads, group, hd), dtype)
    part = p.scratch("part", (c.layers, W, c.kv_heads, group, hd), et.f32)
    part_ml = p.scratch("part_ml", (c.layers, W, c.kv_heads, 2, group), et.f32)
    best = p.scratch("best", (S, head_tiles), et.f32)
    best_at = p.scratch("best_at", (S, head_tiles), et.i32)

    residual = Residual(p, weights, T, tiles.out, in_parts)

    def cut(i, size):
        return slice(i * size, i * size + size)

    p.call(plan_attention(per_split * page, span), grid=(),
           reads=lambda: (position[:], request[:], table[:, :, :]),
           writes=lambda: (first[:], row[:], left[:], item_pages[:, :]))
    p.call(embed(norm_tiles), grid=(T,), reads=lambda t: (rows_in[token[t], :], gains[0, :]),
           writes=lambda t: (h_attn[0, t, :], x_attn[0, t, :], ss_attn[0, t, :]))
    with p.loop("l", c.layers) as at:
        p.call(project(weights, c), name="qkv_proj", grid=(w_qkv.tiles(tiles.qkv),),
               reads=lambda i: (x_attn[at, :, :], ss_attn[at, :, :], w_qkv[at, i, tiles.qkv]),
               writes=lambda i: qkv[at, :, cut(i, tiles.qkv)])
        p.call(rotate(c, page, span > 1), grid=(T, c.kv_heads // turned),
               reads=lambda t, g: (qkv[at, t, cut(g, turned * (group + 2) * hd)],
                                   qk_gains[at, :, :], rope[position[t], :, :], slot[t],
                                   position[0 : t + 1], table[request[t], :, :]),
               writes=lambda t, g: (q[at, t, cut(g, turned), :, :],
                                    kv[at, slot[t] // page, cut(g, turned), :, slot[t] % page, :]))
        # The heads of one task before and after have an axis, so that one event tells of them.
        p.call(attend(dtype, c.kv_heads), grid=(first[T], c.kv_heads // some, some),
               reads=lambda w, g, k: (q[at, row[w], g * some + k, :, :], left[w],
                                      kv[at, item_pages[w, :], g * some + k, :, :, :],
                                      left[w:W], item_pages[w:W, :]),
               writes=lambda w, g, k: (part[at, w, g * some + k, :, :],
                                       part_ml[at, w, g * some + k, :, :]))
        p.call(combine, grid=(T, c.kv_heads // some),
               reads=lambda t, g: (part[at, first[t] : first[t + 1], cut(g, some), :, :],
                                   part_ml[at, first[t] : first[t + 1], cut(g, some), :, :]),
               writes=lambda t, g: mixed[at, t, cut(g, some * group * hd)])
        residual.add("out", at, lambda s, n: mixed[at, :, cut(s, wide // n)], w_o, tiles.out_parts,
                     Level(h_attn, x_attn, ss_attn, at), lambda some: gains[2 * at + 1, some],
                     Level(h_mlp, x_mlp, ss_mlp, at))
        p.call(gate_up(weights, c), grid=(w_gate_up.tiles(tiles.gate_up),),
               reads=lambda i: (x_mlp[at, :, :], ss_mlp[at, :, :],
                                w_gate_up[at, i, tiles.gate_up]),
               writes=lambda i: act[at, :, cut(i, tiles.gate_up // (2 * PANEL)), :])
        residual.add("down", at, lambda s, n: act[at, :, cut(s, c.intermediate // PANEL // n), :],
                     w_down, tiles.down_parts, Level(h_mlp, x_mlp, ss_mlp, at),
                     lambda some: gains[2 * at + 2, some], Level(h_attn, x_attn, ss_attn, at + 1))
    draws = Draws(p, S, logits, chosen, head_tiles) if sampling else None
    p.call(head(weights, c) if draws is None else head_and_tops(weights, c), grid=(head_tiles,),
           reads=lambda i: (x_attn[c.layers, 0:S, :], ss_attn[c.layers, 0:S, :],
                            w_head[i, tiles.head]),
           writes=lambda i: (logits[:, cut(i, tiles.head)], best[:, i], best_at[:, i],
                             *(() if draws is None else (draws.tops[:, i],))),
           notifies=None if draws is None else lambda i: draws.ready[()])
    p.call(choose(tiles.head), grid=(S,), reads=lambda s: (best[s, :], best_at[s, :]),
           writes=lambda s: chosen[s])
    if draws is not None:
        draws.calls()
    return p
