"""The MLP half of a layer with experts in a kernel for steps of one row: its experts are those in
use, and what they give has a place by their number alone, so that elements may carry flags."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ..ir.products import PANEL
from .config import Experts
from .experts import Routed, combine_experts, route_row
from .step import Step, cut
from .tasks import gate_up, multiply


class ExpertRowMlp(Routed):
    """The second half of each layer for one row: T is 1."""

    def __init__(self, step: Step, experts: Experts) -> None:
        super().__init__(step, experts)
        c, p, T, dtype = step.c, step.p, step.T, step.weights.dtype
        E, top, L = experts.count, experts.top, c.layers
        self.share = p.scratch("share", (L, T, top), et.f32)
        self.active = p.output("active", (L,), et.i32)
        self.expert = p.scratch("expert", (L, top), et.i32, bound=E - 1)
        self.act = p.scratch("act", (L, top, T, c.intermediate // PANEL, PANEL), dtype)
        self.y = p.scratch("y", (L, top, T, c.hidden), et.f32)
        self.routed = p.events("routed", (L,), count=1)
        self.made = p.events("made", (L, top), count=self.w_gate_up.tiles(step.tiles.gate_up))

    def calls(self, at: Any) -> None:
        self.score(at)
        self._route(at)
        self._apply(at)
        self._combine(at)

    def _route(self, at: Any) -> None:
        self.step.p.call(
            route_row(self.experts), grid=(), reads=lambda: self.scores[at, :, :],
            writes=lambda: (self.share[at, :, :], self.active[at], self.expert[at, :]),
            notifies=lambda: self.routed[at])

    def _apply(self, at: Any) -> None:
        """The second product waits for the routing by itself, though the first one has: so a loader
        can bring its weights as soon as it knows the experts."""
        step, tiles, top = self.step, self.step.tiles, self.experts.top
        step.p.call(
            gate_up(step.weights, step.c), name="experts_gate_up",
            grid=(top, self.w_gate_up.tiles(tiles.gate_up)),
            reads=lambda a, i: (*step.mlp.normed(at),
                                self.w_gate_up[at, self.expert[at, a], i, tiles.gate_up]),
            writes=lambda a, i: self.act[at, a, :, cut(i, tiles.gate_up // (2 * PANEL)), :],
            notifies=lambda a, i: self.made[at, a])
        step.p.call(
            multiply(step.weights), name="experts_down",
            grid=(top, self.w_down.tiles(tiles.down)),
            reads=lambda a, i: (self.act[at, a, :, :, :],
                                self.w_down[at, self.expert[at, a], i, tiles.down]),
            writes=lambda a, i: self.y[at, a, :, cut(i, tiles.down)],
            waits=lambda a, i: (self.routed[at], self.made[at, a]))

    def _combine(self, at: Any) -> None:
        step, tile, attn = self.step, self.step.tiles.down, self.step.attn
        step.p.call(
            combine_experts, grid=(step.T, self.w_down.tiles(tile)),
            reads=lambda t, i: (step.mlp.h[at, t, cut(i, tile)], self.y[at, :, t, cut(i, tile)],
                                self.share[at, t, :], step.gains[2 * at + 2, cut(i, tile)]),
            writes=lambda t, i: attn.piece(at + 1, t, i, tile, i))
