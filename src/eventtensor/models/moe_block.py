"""The MLP half of a layer with experts. Routing lists the experts in use and the *pairs* (token,
expert), expert by expert; their products have a grid over that list, and read each weight once.

After the routing nothing waits for an expert that it does not use: the tiles of an expert's second
product for those of its first, a token for the experts that it was sent to, tile by tile.
"""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ..ir.products import PANEL
from .decoder_tasks import gate_up, multiply, norm_scale, project
from .model_config import Experts, ModelConfig
from .step import Step, cut

# For a GPU, of device/cuda/expert_routing.cuh. Sizes are those of all experts and of the largest
# step.
_ROUTE = """
#include "cuda/expert_routing.cuh"
int32_t* const room = worker.arena.take<int32_t>({room});
et::experts::route<expert_0, chosen_1, {rows}>(
    room, chosen, given, share, rank, pair, active, expert, begin, member);
"""
_PICK = """
#include "cuda/expert_routing.cuh"
float* const near = worker.arena.take<float>({room});
et::experts::pick_experts<scores_0, scores_2, share_1, {normed}>(near, scores, chosen, share);
"""
_ROUTE_ROW = """
#include "cuda/expert_routing.cuh"
float* const near = worker.arena.take<float>({room});
et::experts::route_row<scores_0, scores_2, share_1, {normed}, squares_1>(
    near, scores, squares, share, active, expert, {hidden}f, {eps}f);
"""


def _route_on_gpu(experts: Experts, rows: int) -> str:
    words = -(-rows // 32)  # of an expert: a bit for each row
    return _ROUTE.format(room=(2 + words) * experts.count, rows=rows)


def _on_gpu(text: str, experts: Experts, **more: float) -> str:
    """Of a row: the places of all experts, some more so that quads are whole, and the best."""
    room = experts.count + 2 * experts.top + 32
    return text.format(room=room, normed=str(experts.normed).lower(), **more)


def _shares(scores: Any, best: Any, normed: bool) -> Any:
    """Of the best: by softmax among themselves, or among all."""
    most = best[:, 0:1]
    chances = et.exp(best - most)
    whole = chances if normed else et.exp(scores - most)
    return chances / whole.sum(axis=1, keepdims=True)


def _added(parts: Any) -> Any:
    """Scores that come in parts of K."""
    whole = parts[0, :, :]
    for k in range(1, int(parts.shape[0])):
        whole = whole + parts[k, :, :]
    return whole


def pick_experts(experts: Experts) -> Any:
    """The best experts of a row, whose scores come in parts that add up, and their shares. Ties go
    to the lower expert."""

    @et.task(cuda=_on_gpu(_PICK, experts))
    def pick_experts(scores, chosen, share):
        whole = _added(scores)
        values, found = et.topk(whole, experts.top)
        chosen[:] = found
        share[:] = _shares(whole, values, experts.normed)

    return pick_experts


def route(experts: Experts, rows: int) -> Any:
    """Who goes where, from the experts of each token, whose shares are passed on. Pairs of an
    expert are in the order of tokens, so what a token gives never depends on who else goes there.
    `rows`: the most that a step has."""
    E, top = experts.count, experts.top

    @et.task(cuda=_route_on_gpu(experts, rows))
    def route(chosen, given, share, rank, pair, active, expert, begin, member):
        tokens = chosen.shape[0]
        share[:] = given
        # Tokens that went to each expert, up to and with this one.
        hits = (chosen[:, :, None] == et.iota(E)[None, None, :]).cast(et.i32).sum(axis=1)
        seen = hits.cumsum(0)
        counts = hits.sum(axis=0)
        ends = counts.cumsum(0)
        used = et.minimum(counts, 1)
        ranks = used.cumsum(0) - 1
        active[:] = used.sum(axis=0)
        rank[:] = et.gather(ranks, chosen)
        before = et.gather((seen - 1).reshape(tokens * E), et.iota(tokens)[:, None] * E + chosen)
        pair[:] = et.gather(ends - counts, chosen) + before
        # The a-th expert in use is the first whose rank is a; past the last one nothing begins.
        nth = (ranks[None, :] < et.iota(E)[:, None]).cast(et.i32).sum(axis=1)
        there = et.minimum(nth, E - 1)
        expert[:] = there
        starts = et.where(nth < E, et.gather(ends - counts, there), tokens * top)
        begin[:] = et.concat([starts, et.full((1,), tokens * top, et.i32)], axis=0)
        # Pair i is of the expert before whose end it lies, and of its token number i - start.
        i = et.iota(tokens * top)
        mine = (ends[None, :] <= i[:, None]).cast(et.i32).sum(axis=1)
        number = i - et.gather(ends - counts, mine)
        member[:] = (et.gather(seen.T, mine) <= number[:, None]).cast(et.i32).sum(axis=1)

    return route


def route_row(experts: Experts, c: ModelConfig) -> Any:
    """The same for one row, whose experts come in the order of their scores. These are products
    with what the norm has not scaled yet, for the order does not hang on it."""
    top = experts.top

    @et.task(cuda=_on_gpu(_ROUTE_ROW, experts, hidden=float(c.hidden), eps=float(c.norm_eps)))
    def route_row(scores, squares, share, active, expert):
        whole = _added(scores)
        values, chosen = et.topk(whole, top)
        scale = norm_scale(squares, c)[:, None]
        share[:] = _shares(whole * scale, values * scale, experts.normed)
        active[:] = et.full((), top, et.i32)
        expert[:] = chosen[0]

    return route_row


@et.task
def combine_tiles(before, y, share, gain, h, out, ss):
    """What experts give a token is added to the residual: some tiles, each of which has a sum of
    squares."""
    new = before + (y * share[:, None]).sum(axis=0)
    h[:] = new
    out[:] = new * gain
    tiles = ss.shape[0]
    ss[:] = (new * new).reshape(tiles, new.shape[0] // tiles).sum(axis=1)


class RouterScores:
    """What a half with experts begins with: the weights, and the scores of all experts."""

    def __init__(self, step: Step, experts: Experts) -> None:
        c, p, weights, E = step.c, step.p, step.weights, experts.count
        self.step, self.experts = step, experts
        self.w_router = weights.matrix(p, c, "w_router")
        self.w_gate_up = weights.matrix(p, c, "w_gate_up")
        self.w_down = weights.matrix(p, c, "w_down")
        shape = (c.layers, step.tiles.score_parts, step.T, E)
        self.scores = p.scratch("scores", shape, et.f32)

    def score(self, at: Any, scaled: bool = True, **more: Any) -> None:
        """In parts of K, which the norm scales one by one if it does: a task reads little of x."""
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
    """The second half of each layer, with experts."""

    def __init__(self, step: Step, experts: Experts) -> None:
        super().__init__(step, experts)
        c, p, T, dtype = step.c, step.p, step.T, step.weights.dtype
        E, top, L = experts.count, experts.top, c.layers
        # Of a token's experts: which they are and their shares, as they are picked; then shares
        # once more, which come with the routing (a look at flags less for who adds up), numbers in
        # the list of those in use, and pairs.
        self.chosen = p.scratch("experts_chosen", (L, T, top), et.i32)
        self.given = p.scratch("given_share", (L, T, top), et.f32)
        self.share = p.scratch("share", (L, T, top), et.f32)
        self.rank = p.scratch("rank", (L, T, top), et.i32, bound=E - 1)
        self.pair = p.scratch("pair", (L, T, top), et.i32, bound=T * top - 1, distinct=(1, 2))
        # The experts in use, and where the pairs of each begin; the token of each pair.
        self.active = p.output("active", (L,), et.i32, bound=(0, et.min(E, T * top)))
        self.expert = p.scratch("expert", (L, E), et.i32, bound=E - 1)
        self.begin = p.scratch("begin", (L, E + 1), et.i32, bound=T * top, monotone=True)
        self.member = p.scratch("member", (L, T * top), et.i32, bound=T - 1)
        self.act = p.scratch("act", (L, T * top, c.intermediate // PANEL, PANEL), dtype)
        self.y = p.scratch("y", (L, T * top, c.hidden), et.f32)
        p.fact(self._belongs, over=(L, T, top))
        # Scores and picks go from task to task with flags, which order nothing else: whoever comes
        # after the routing sees the residual because that waits for the scores as well.
        self.scored, self.picked = p.events("scored", (L,)), p.events("picked", (L,))
        self.routed = p.events("routed", (L,), count=1)
        # A token's row is summed up in pieces of some tiles.
        tiles = self.w_down.tiles(step.tiles.down)
        self.pieces = step.pieces(tiles, otherwise=1)
        self.together = tiles // self.pieces
        self.done = p.events("expert_done", (L, E, self.pieces), count=self.together)
        # All second products of a layer, before the next routing: every token has waited for its
        # own, but that these are all is nothing the proof knows. So layers share `act` and `y`,
        # which then stay in the cache.
        self.over = p.events("experts_over", (L,))

    def _belongs(self, at: Any, t: Any, k: Any) -> list[Any]:
        """A pair lies among those of its expert, which is in use."""
        rank, pair = self.rank[at, t, k], self.pair[at, t, k]
        return [self.begin[at, rank] <= pair, pair < self.begin[at, rank + 1],
                rank < self.active[at]]

    def calls(self, at: Any) -> None:
        self.score(at, notifies=lambda i, s: self.scored[at])
        self._route(at)
        self._apply(at)
        self._combine(at)

    def _route(self, at: Any) -> None:
        step, before = self.step, slice(et.max(at - 1, 0), at)  # the layer before, if there is one
        step.p.call(
            pick_experts(self.experts), grid=(step.T,),
            reads=lambda t: self.scores[at, :, cut(t, 1), :],
            writes=lambda t: (self.chosen[at, cut(t, 1), :], self.given[at, cut(t, 1), :]),
            notifies=lambda t: self.picked[at])
        step.p.call(
            route(self.experts, step.most_rows), grid=(),
            reads=lambda: (self.chosen[at, :, :], self.given[at, :, :]),
            writes=lambda: (self.share[at, :, :], self.rank[at, :, :], self.pair[at, :, :],
                            self.active[at], self.expert[at, :], self.begin[at, :],
                            self.member[at, :]),
            waits=lambda: (self.routed[before], self.over[before], self.scored[at],
                           self.picked[at]),
            notifies=lambda: self.routed[at])

    def _apply(self, at: Any) -> None:
        """Each expert in use, on its own tokens: no more than there are."""
        step, tiles, mlp, active = self.step, self.step.tiles, self.step.mlp, self.active[at]

        def pairs(a: Any) -> slice:
            start = self.begin[at, a]
            return slice(start, et.min(start + step.T, self.begin[at, a + 1]))

        step.p.call(
            gate_up(step.weights, step.c), name="experts_gate_up",
            grid=(active, self.w_gate_up.tiles(tiles.gate_up)),
            reads=lambda a, i: (mlp.x[at, self.member[at, pairs(a)], :],
                                mlp.ss[at, self.member[at, pairs(a)], :],
                                self.w_gate_up[at, self.expert[at, a], i, tiles.gate_up]),
            writes=lambda a, i: self.act[at, pairs(a), cut(i, tiles.gate_up // (2 * PANEL)), :],
            waits=())  # the grid has waited for the routing, which has for the residual
        step.p.call(
            multiply(step.weights), name="experts_down",
            grid=(active, self.pieces, self.together),
            reads=lambda a, j, k: (
                self.act[at, pairs(a), :, :],
                self.w_down[at, self.expert[at, a], j * self.together + k, tiles.down]),
            writes=lambda a, j, k: self.y[at, pairs(a), cut(j * self.together + k, tiles.down)],
            notifies=lambda a, j, k: (self.done[at, a, j], self.over[at]))

    def _combine(self, at: Any) -> None:
        step, attn = self.step, self.step.attn
        each = step.tiles.down * self.together
        step.p.call(
            combine_tiles, name="combine_experts", grid=(step.T, self.pieces),
            reads=lambda t, i: (step.mlp.h[at, t, cut(i, each)],
                                self.y[at, self.pair[at, t, :], cut(i, each)],
                                self.share[at, t, :], step.gains[2 * at + 2, cut(i, each)]),
            writes=lambda t, i: attn.piece(at + 1, t, i, each, cut(i, self.together)),
            waits=lambda t, i: (self.routed[at], self.done[at, self.rank[at, t, :], i]))
