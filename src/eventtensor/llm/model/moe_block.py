"""The MoE sublayer. Routing lists the active experts and the *pairs* (token, expert), expert by
expert. The grids of both products go over that list, so each weight is read once. After the routing
a task waits only for the experts that it uses: tiles of the second product for the first product of
the same expert, a token for its own experts, tile by tile. moe_decode_single.py has a single token.
"""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ...ir.products import PANEL
from ..kernels import header
from .decoder_tasks import gate_up, multiply, norm_scale, project
from .model_config import Experts, ModelConfig
from .step import Step, cut

# CUDA bodies. Sizes are those of all experts and of the largest step.
_HEADERS = header("expert_routing.cuh")
_ROUTE = """
et::experts::route<expert_0, chosen_1, {rows}>(
    smem, chosen, given, share, rank, pair, active, expert, begin, member);
"""
_PICK = """
et::experts::pick_experts<scores_0, scores_2, share_1, {normed}>(smem, scores, chosen, share);
"""
_ROUTE_ROW = """
et::experts::route_single<scores_0, scores_2, share_1, {normed}, squares_1>(
    smem, scores, squares, share, active, expert, {hidden}f, {eps}f);
"""


def _route_on_gpu(experts: Experts, rows: int) -> et.CudaBody:
    words = -(-rows // 32)  # of an expert: a bit for each token
    smem = et.Scratch("smem", et.i32, (2 + words) * experts.count)
    return et.CudaBody(_ROUTE.format(rows=rows), scratch=(smem,), headers=_HEADERS)


def _on_gpu(text: str, experts: Experts, **more: float) -> et.CudaBody:
    """The CUDA body for a token, with shared memory for padded scores and the top-k."""
    smem = et.Scratch("smem", et.f32, experts.count + 2 * experts.top + 32)
    source = text.format(normed=str(experts.normed).lower(), **more)
    return et.CudaBody(source, scratch=(smem,), headers=_HEADERS)


def _shares(scores: Any, best: Any, normed: bool) -> Any:
    """The shares of the top-k: a softmax over the top-k (`normed`), or over all experts."""
    most = best[:, 0:1]
    chances = et.exp(best - most)
    whole = chances if normed else et.exp(scores - most)
    return chances / whole.sum(axis=1, keepdims=True)


def _sum_parts(parts: Any) -> Any:
    """The sum of the split-K parts of scores."""
    whole = parts[0, :, :]
    for k in range(1, int(parts.shape[0])):
        whole = whole + parts[k, :, :]
    return whole


def pick_experts(experts: Experts) -> Any:
    """The top-k experts of a token and their shares, from split-K parts of scores. The lower expert
    wins a tie."""

    @et.task(cuda=_on_gpu(_PICK, experts))
    def pick_experts(scores, chosen, share):
        whole = _sum_parts(scores)
        values, found = et.topk(whole, experts.top)
        chosen[:] = found
        share[:] = _shares(whole, values, experts.normed)

    return pick_experts


def route(experts: Experts, rows: int) -> Any:
    """Groups the pairs (token, expert) by expert and passes the shares on. The pairs of an expert
    are in the order of tokens, so the result of a token never depends on other tokens. `rows`: the
    tokens of the largest step."""
    E, top = experts.count, experts.top

    @et.task(cuda=_route_on_gpu(experts, rows))
    def route(chosen, given, share, rank, pair, active, expert, begin, member):
        tokens = chosen.shape[0]
        share[:] = given
        # Tokens of each expert, up to and with this one.
        hits = (chosen[:, :, None] == et.iota(E)[None, None, :]).cast(et.i32).sum(axis=1)
        seen = hits.cumsum(0)
        counts = hits.sum(axis=0)
        ends = counts.cumsum(0)
        is_active = et.minimum(counts, 1)
        ranks = is_active.cumsum(0) - 1
        active[:] = is_active.sum(axis=0)
        rank[:] = et.gather(ranks, chosen)
        before = et.gather((seen - 1).reshape(tokens * E), et.iota(tokens)[:, None] * E + chosen)
        pair[:] = et.gather(ends - counts, chosen) + before
        # The a-th active expert is the first one with rank a. After the last one no pair begins.
        nth = (ranks[None, :] < et.iota(E)[:, None]).cast(et.i32).sum(axis=1)
        found = et.minimum(nth, E - 1)
        expert[:] = found
        starts = et.where(nth < E, et.gather(ends - counts, found), tokens * top)
        begin[:] = et.concat([starts, et.full((1,), tokens * top, et.i32)], axis=0)
        # Pair i belongs to the first expert that ends after it, and to its token i - start.
        i = et.iota(tokens * top)
        owner = (ends[None, :] <= i[:, None]).cast(et.i32).sum(axis=1)
        number = i - et.gather(ends - counts, owner)
        member[:] = (et.gather(seen.T, owner) <= number[:, None]).cast(et.i32).sum(axis=1)

    return route


def route_single(experts: Experts, c: ModelConfig) -> Any:
    """Routing of a single token, whose experts are in the order of their scores. The scores lack
    the scale of the norm, because their order does not depend on it."""
    top = experts.top

    @et.task(cuda=_on_gpu(_ROUTE_ROW, experts, hidden=float(c.hidden), eps=float(c.norm_eps)))
    def route_single(scores, squares, share, active, expert):
        whole = _sum_parts(scores)
        values, chosen = et.topk(whole, top)
        scale = norm_scale(squares, c)[:, None]
        share[:] = _shares(whole * scale, values * scale, experts.normed)
        active[:] = et.full((), top, et.i32)
        expert[:] = chosen[0]

    return route_single


@et.task
def combine_tiles(before, y, share, gain, h, out, ss):
    """Adds the results of a token's experts to the residual, for some tiles; each tile has a sum of
    squares."""
    new = before + (y * share[:, None]).sum(axis=0)
    h[:] = new
    out[:] = new * gain
    tiles = ss.shape[0]
    ss[:] = (new * new).reshape(tiles, new.shape[0] // tiles).sum(axis=1)


class RouterScores:
    """The first part of a MoE sublayer: the weights, and the scores of all experts."""

    def __init__(self, step: Step, experts: Experts) -> None:
        c, p, weights, E = step.c, step.p, step.weights, experts.count
        self.step, self.experts = step, experts
        self.w_router = weights.matrix(p, c, "w_router")
        self.w_gate_up = weights.matrix(p, c, "w_gate_up")
        self.w_down = weights.matrix(p, c, "w_down")
        shape = (c.layers, step.tiles.score_parts, step.num_tokens, E)
        self.scores = p.scratch("scores", shape, et.f32)

    def score(self, at: Any, scaled: bool = True, **more: Any) -> None:
        """Calls the router as a split-K product, so that a task reads little of x. `scaled`: each
        part gets the scale of the norm."""
        step, parts, mlp = self.step, self.step.tiles.score_parts, self.step.mlp
        each, squares = step.c.hidden // parts, (mlp.ss[at, :, :],) if scaled else ()

        def panel(i: Any, s: Any) -> Any:
            w = self.w_router
            return w[at, i, PANEL] if parts == 1 else w.part(at, i, PANEL, s, parts)

        step.p.call(
            project(step.weights, step.c) if scaled else multiply(step.weights), name="router",
            grid=(self.w_router.tiles(PANEL), parts),
            reads=lambda i, s: (mlp.x[at, :, cut(s, each)], *squares, panel(i, s)),
            writes=lambda i, s: self.scores[at, s, :, cut(i, PANEL)], **more)


class MoeBlock(RouterScores):
    """The MoE sublayer of each layer."""

    def __init__(self, step: Step, experts: Experts) -> None:
        super().__init__(step, experts)
        c, p, T, dtype = step.c, step.p, step.num_tokens, step.weights.dtype
        E, top, L = experts.count, experts.top, c.layers
        # The experts of each token and their shares, from pick_experts. Then from the routing: the
        # shares again (one wait less for combine), ranks among active experts, and pairs.
        self.chosen = p.scratch("experts_chosen", (L, T, top), et.i32)
        self.given = p.scratch("given_share", (L, T, top), et.f32)
        self.share = p.scratch("share", (L, T, top), et.f32)
        self.rank = p.scratch("rank", (L, T, top), et.i32, bound=E - 1)
        self.pair = p.scratch("pair", (L, T, top), et.i32, bound=T * top - 1, distinct=(1, 2))
        # The active experts and the first pair of each; the token of each pair.
        self.active = p.output("active", (L,), et.i32, bound=(0, et.min(E, T * top)))
        self.expert = p.scratch("expert", (L, E), et.i32, bound=E - 1)
        self.begin = p.scratch("begin", (L, E + 1), et.i32, bound=T * top, monotone=True)
        self.member = p.scratch("member", (L, T * top), et.i32, bound=T - 1)
        self.act = p.scratch("act", (L, T * top, c.intermediate // PANEL, PANEL), dtype)
        self.y = p.scratch("y", (L, T * top, c.hidden), et.f32)
        p.fact(self._belongs, over=(L, T, top))
        # Scores and picks are tagged hand-offs, which order no other memory. The routing also waits
        # for these events, so its consumers see the residual.
        self.scored, self.picked = p.events("scored", (L,)), p.events("picked", (L,))
        self.routed = p.events("routed", (L,), count=1)
        # Combine sums a token in pieces of some tiles.
        tiles = self.w_down.tiles(step.tiles.down)
        self.pieces = step.pieces(tiles, otherwise=1)
        self.tiles_per_piece = tiles // self.pieces
        self.done = p.events("expert_done", (L, E, self.pieces), count=self.tiles_per_piece)
        # The next routing waits for all second products of a layer. Every token has waited for its
        # own products, but the proof cannot know that these are all. With this event layers share
        # `act` and `y`, which then stay in the L2.
        self.over = p.events("experts_over", (L,))

    def _belongs(self, at: Any, t: Any, k: Any) -> list[Any]:
        """A pair lies among those of its expert, which is active."""
        rank, pair = self.rank[at, t, k], self.pair[at, t, k]
        return [self.begin[at, rank] <= pair, pair < self.begin[at, rank + 1],
                rank < self.active[at]]

    def add_calls(self, at: Any) -> None:
        self.score(at, notifies=lambda i, s: self.scored[at])
        self._route(at)
        self._apply(at)
        self._combine(at)

    def _route(self, at: Any) -> None:
        step, before = self.step, slice(et.max(at - 1, 0), at)  # the layer before, if there is one
        step.p.call(
            pick_experts(self.experts), grid=(step.num_tokens,),
            reads=lambda t: self.scores[at, :, cut(t, 1), :],
            writes=lambda t: (self.chosen[at, cut(t, 1), :], self.given[at, cut(t, 1), :]),
            notifies=lambda t: self.picked[at])
        step.p.call(
            route(self.experts, step.max_tokens), grid=(),
            reads=lambda: (self.chosen[at, :, :], self.given[at, :, :]),
            writes=lambda: (self.share[at, :, :], self.rank[at, :, :], self.pair[at, :, :],
                            self.active[at], self.expert[at, :], self.begin[at, :],
                            self.member[at, :]),
            waits=lambda: (self.routed[before], self.over[before], self.scored[at],
                           self.picked[at]),
            notifies=lambda: self.routed[at])

    def _apply(self, at: Any) -> None:
        """Calls both products of each active expert on its own tokens."""
        step, tiles, mlp, active = self.step, self.step.tiles, self.step.mlp, self.active[at]

        def pairs(a: Any) -> slice:
            start = self.begin[at, a]
            return slice(start, et.min(start + step.num_tokens, self.begin[at, a + 1]))

        step.p.call(
            gate_up(step.weights, step.c), name="experts_gate_up",
            grid=(active, self.w_gate_up.tiles(tiles.gate_up)),
            reads=lambda a, i: (mlp.x[at, self.member[at, pairs(a)], :],
                                mlp.ss[at, self.member[at, pairs(a)], :],
                                self.w_gate_up[at, self.expert[at, a], i, tiles.gate_up]),
            writes=lambda a, i: self.act[at, pairs(a), cut(i, tiles.gate_up // (2 * PANEL)), :],
            waits=())  # the grid waits for the routing, which waits for the residual
        step.p.call(
            multiply(step.weights), name="experts_down",
            grid=(active, self.pieces, self.tiles_per_piece),
            reads=lambda a, j, k: (
                self.act[at, pairs(a), :, :],
                self.w_down[at, self.expert[at, a], j * self.tiles_per_piece + k, tiles.down]),
            writes=lambda a, j, k: self.y[
                at, pairs(a), cut(j * self.tiles_per_piece + k, tiles.down)],
            notifies=lambda a, j, k: (self.done[at, a, j], self.over[at]))

    def _combine(self, at: Any) -> None:
        step, attn = self.step, self.step.attn
        each = step.tiles.down * self.tiles_per_piece
        step.p.call(
            combine_tiles, name="combine_experts", grid=(step.num_tokens, self.pieces),
            reads=lambda t, i: (step.mlp.h[at, t, cut(i, each)],
                                self.y[at, self.pair[at, t, :], cut(i, each)],
                                self.share[at, t, :], step.gains[2 * at + 2, cut(i, each)]),
            writes=lambda t, i: attn.piece(at + 1, t, i, each, cut(i, self.tiles_per_piece)),
            waits=lambda t, i: (self.routed[at], self.done[at, self.rank[at, t, :], i]))
