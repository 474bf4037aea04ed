"""The MoE sublayer for a single decode token: its experts are all active experts. The place of a
result depends on the number of its expert alone, so tagged hand-offs are possible. A task of the
second product multiplies some rows with all experts."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

import eventtensor as et

from ...ir.products import PANEL
from .decoder_tasks import Weights, gate_up
from .model_config import Experts
from .moe_block import RouterScores, route_single
from .step import Step, cut


def project_experts(weights: Weights, top: int) -> Any:
    """Adds the results of `top` experts, times their shares, to the residual: a product for
    each."""
    def project_experts(*args):
        act, share, new, gain, *w, h, out, ss = args
        shares = [share[a] for a in range(top)]  # before the products, which are one run
        for a in range(top):
            x = act[a].reshape(1, weights.columns(w[a]))
            new = new + weights.product(x, w[a])[0] * shares[a]
        h[:] = new
        out[:] = new * gain
        ss[:] = (new * new).sum(axis=0)

    names = ("act", "share", "before", "gain", *(f"w{a}" for a in range(top)), "h", "out", "ss")
    project_experts.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(n, Parameter.POSITIONAL_ONLY) for n in names])
    return et.task(project_experts)


class SingleDecodeMoe(RouterScores):
    """The MoE sublayer of each layer for a single token."""

    def __init__(self, step: Step, experts: Experts) -> None:
        super().__init__(step, experts)
        c, p, T, dtype = step.c, step.p, step.num_tokens, step.weights.dtype
        E, top, L = experts.count, experts.top, c.layers
        self.share = p.scratch("share", (L, T, top), et.f32)
        self.active = p.output("active", (L,), et.i32)
        self.expert = p.scratch("expert", (L, top), et.i32, bound=E - 1)
        self.act = p.scratch("act", (L, top, T, c.intermediate // PANEL, PANEL), dtype)
        # `listed` covers the expert numbers alone: consumers can recompute these from the scores.
        self.listed = p.events("listed", (L,), count=1)
        self.routed = p.events("routed", (L,), count=1)
        self.made = p.events("made", (L,), count=top * self.w_gate_up.tiles(step.tiles.gate_up))

    def add_calls(self, at: Any) -> None:
        self.score(at, scaled=False)
        self._route(at)
        self._apply(at)

    def _route(self, at: Any) -> None:
        step = self.step
        step.p.call(
            route_single(self.experts, step.c), grid=(),
            reads=lambda: (self.scores[at, :, :, :], step.mlp.ss[at, :, :]),
            writes=lambda: (self.share[at, :, :], self.active[at], self.expert[at, :]),
            notifies=lambda: (self.listed[at], self.routed[at]))

    def _apply(self, at: Any) -> None:
        """Calls both products. The second one waits for the routing itself, although the first one
        has waited: so its producer warp can load weights as soon as the routing is known."""
        step, tiles, top = self.step, self.step.tiles, self.experts.top
        step.p.call(
            gate_up(step.weights, step.c), name="experts_gate_up",
            grid=(top, self.w_gate_up.tiles(tiles.gate_up)),
            reads=lambda a, i: (*step.mlp.normed(at),
                                self.w_gate_up[at, self.expert[at, a], i, tiles.gate_up]),
            writes=lambda a, i: self.act[at, a, :, cut(i, tiles.gate_up // (2 * PANEL)), :],
            waits=lambda a, i: self.listed[at],
            notifies=lambda a, i: self.made[at])
        step.p.call(
            project_experts(step.weights, top), name="experts_down",
            grid=(self.w_down.tiles(tiles.down),),
            reads=lambda i: (self.act[at, :, 0, :, :], self.share[at, 0, :],
                             step.mlp.h[at, 0, cut(i, tiles.down)],
                             step.gains[2 * at + 2, cut(i, tiles.down)],
                             *(self.w_down[at, self.expert[at, a], i, tiles.down]
                               for a in range(top))),
            writes=lambda i: step.attn.piece(at + 1, 0, i, tiles.down, i),
            waits=lambda i: (self.routed[at], self.made[at]))
