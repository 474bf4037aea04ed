"""The step of Llama, Qwen3 and Qwen3-MoE models as one program: embedding, layers, head, sampling.
Prefill is chunked and batched with decode: a token is a pair (sequence, position) in both.
attention_block.py and moe_block.py have the sublayers; runner.py runs the program.
"""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ...ir.products import PANEL
from ...targets.devices import DEFAULT_DEVICE
from ...targets.target import CudaTarget
from .attention_block import AttentionBlock, span_for
from .attention_decode_batch import BatchDecodeAttention, decode_variant
from .attention_decode_single import SingleDecodeAttention, has_single_decode
from .decoder_tasks import Weights, choose, embed, gate_up, head, head_with_tile_max
from .logits_processors import Logits
from .model_config import ModelConfig
from .moe_block import MoeBlock
from .moe_decode_single import SingleDecodeMoe
from .residual_projection import ResidualProjection
from .sampler import Sampler
from .step import Step, cut
from .step_limits import MAX_TOKENS
from .tile_sizes import Tiles, tiles_for


def llama(
    config: ModelConfig, weights: Weights, tiles: Tiles | None = None, tokens: int = MAX_TOKENS,
    sampling: bool = False, span: int | None = None, batch_invariant: bool = False,
    decode_only: bool = False, target: CudaTarget = DEFAULT_DEVICE,
) -> et.Program:
    """`batch_invariant`: a row gives the same bits whatever other rows a step has. `decode_only`:
    each token is the newest of its own sequence and gets a successor."""
    c, span = config, span or span_for(weights, tokens)
    least = decode_variant(c, tokens, target.multiprocessors).least if decode_only else 1
    tiles = tiles or tiles_for(c, weights.layout, span > 1, target)
    step = Step(c, weights, tiles, tokens, decode_only, least, target)
    attention = _attention(step, span, batch_invariant)
    mlp = _mlp(step)
    attention.add_plan()
    _embed(step)
    with step.p.loop("l", c.layers) as at:
        attention.add_calls(at)
        mlp.add_calls(at)
    _sample(step, sampling, attention)
    return step.p


def _attention(step: Step, span: int, batch_invariant: bool) -> AttentionBlock:
    if has_single_decode(step.weights, step.max_tokens, span):
        return SingleDecodeAttention(step)
    if step.decode_only:
        heads = decode_variant(step.c, step.tokens, step.target.multiprocessors).heads
        return BatchDecodeAttention(step, span, batch_invariant, heads)
    return AttentionBlock(step, span, batch_invariant)


def _mlp(step: Step) -> DenseMlp | MoeBlock | SingleDecodeMoe:
    if step.c.experts is None:
        return DenseMlp(step)
    return (SingleDecodeMoe if step.max_tokens == 1 else MoeBlock)(step, step.c.experts)


class DenseMlp:
    """The MLP sublayer of each layer, the same for all tokens."""

    def __init__(self, step: Step) -> None:
        c, p, weights, tiles = step.c, step.p, step.weights, step.tiles
        self.step, self.panels = step, c.intermediate // PANEL
        self.w_gate_up = weights.matrix(p, c, "w_gate_up")
        w_down = weights.matrix(p, c, "w_down")
        self.act = p.scratch("act", (c.layers, step.num_tokens, self.panels, PANEL), weights.dtype)
        self.down = ResidualProjection(step, "down", w_down, tiles.down, tiles.down_parts,
                                       sublayer=1)

    def add_calls(self, at: Any) -> None:
        step, tile = self.step, self.step.tiles.gate_up
        step.p.call(
            gate_up(step.weights, step.c), grid=(self.w_gate_up.tiles(tile),),
            reads=lambda i: (*step.mlp.normed(at), self.w_gate_up[at, i, tile]),
            writes=lambda i: self.act[at, :, cut(i, tile // (2 * PANEL)), :])
        self.down.add_calls(at, lambda s, n: self.act[at, :, cut(s, self.panels // n), :])


def _embed(step: Step) -> None:
    c, p, attn = step.c, step.p, step.attn
    token = p.input("token", (step.num_tokens,), et.i32, bound=c.vocab - 1)
    rows = p.weight("embed", (c.vocab, c.hidden), step.weights.dtype)
    sums = int(attn.ss.shape[2])
    pieces = step.pieces(sums, otherwise=1)
    each, some = c.hidden // pieces, sums // pieces
    p.call(embed(some), grid=(step.num_tokens, pieces),
           reads=lambda t, j: (rows[token[t], cut(j, each)], step.gains[0, cut(j, each)]),
           writes=lambda t, j: attn.piece(0, t, j, each, cut(j, some)))


def _sample(step: Step, sampling: bool, attention: AttentionBlock) -> None:
    """The head, and the sampler for the first `num_sampled` tokens."""
    c, p, S, weights, tile = step.c, step.p, step.num_sampled, step.weights, step.tiles.head
    w_head = weights.matrix(p, c, "head")
    tiles = w_head.tiles(tile)
    given = Logits(p, S, c.vocab, tile) if sampling else None
    logits = p.output("logits", (S, c.vocab), et.f32) if given is None else given.values
    chosen = p.output("chosen", (S,), et.i32) if given is None else given.chosen
    best = p.scratch("best", (S, tiles), et.f32)
    best_at = p.scratch("best_at", (S, tiles), et.i32)
    p.call(head(weights, c) if given is None else head_with_tile_max(weights, c), grid=(tiles,),
           reads=lambda i: (step.attn.x[c.layers, 0:S, :], step.attn.ss[c.layers, 0:S, :],
                            w_head[i, tile]),
           writes=lambda i: (logits[0:S, cut(i, tile)], best[:, i], best_at[:, i],
                             *(() if given is None else (given.tops[0:S, i],))),
           notifies=None if given is None else lambda i: given.ready[()])
    attention.append()
    p.call(choose(tile), grid=(S,), reads=lambda s: (best[s, :], best_at[s, :]),
           writes=lambda s: chosen[s])
    if given is not None:
        Sampler(given).add_calls()
