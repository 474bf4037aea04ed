"""Tables (ir/index_tables.py): the producer warp reads the row of a grid once, and its lanes
keep it. Where it claims the tiles, it forwards what it has looked up for each to the tasks, which
spares them a trip to the memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.availability import DataAvailability
from ...ir.expr import Load, Node
from ...ir.index_tables import fits_in_warp, placement_exprs
from ...ir.plan import HandoffKind, Plan, Stream, Wait
from ...ir.program import PlacedCall
from ...ir.tensor import region_exprs
from ...ir.walk import loads_of

_TOLD = 4  # numbers that are forwarded with a tile


@dataclass(frozen=True)
class Tables:
    plan: Plan
    streams: Mapping[str, tuple[Stream, ...]]

    def of(self, p: PlacedCall) -> dict[str, tuple[Node, ...]]:
        """The tensors, and the row that the grid reads: the header waits for it, or the
        producer warp before its first tile."""
        return {load.tensor: load.index[:-1] for load in self._loads(p)}

    def told(self, p: PlacedCall) -> tuple[Load, ...]:
        """What is forwarded with a tile: none where the producer warp waits behind its claim, since
        they have to do that wait first (with a limit)."""
        if self.after(p):
            return ()
        paged = {s.arg for s in self.streams[p.call.name]}
        own = [r for k, r in enumerate(p.call.regions) if k not in paged]
        used = loads_of(*(e for r in own for e in region_exprs(r)))
        return tuple(x for x in self._loads(p) if x in used)[:_TOLD]

    def after(self, p: PlacedCall) -> tuple[Wait, ...]:
        """Waits of the tasks that tell where operands lie."""
        events = {e for s in self.streams[p.call.name] for e in s.wait_events}
        return tuple(w for w in self.plan.call(p.call.name).waits if w.event in events)

    def waited(self, p: PlacedCall) -> tuple[Wait, ...]:
        """Those of them that the producer warp does as well. Otherwise it polls the numbers
        themselves, or recomputes them."""
        told = {
            h.event
            for h in self.plan.handoffs
            if h.call == p.call.name and h.kind in (HandoffKind.tagged_index, HandoffKind.recompute)
        }
        return tuple(w for w in self.after(p) if w.event not in told)

    def again(self, p: PlacedCall) -> frozenset[str]:
        """Tensors whose numbers the producer warp recomputes."""
        return frozenset(
            t
            for h in self.plan.handoffs
            for t in h.tensors
            if h.call == p.call.name and h.kind is HandoffKind.recompute
        )

    def _loads(self, p: PlacedCall) -> tuple[Load, ...]:
        plan, found = self.plan, dict[Load, None]()
        waits = (*plan.call(p.call.name).header, *self.after(p))
        for load in loads_of(
            *(e for s in self.streams[p.call.name] for e in placement_exprs(p, s))
        ):
            if (
                waits
                and fits_in_warp(plan.program, p, load)
                and DataAvailability(plan, p, waits).are_loads_known(load)
            ):
                found[load] = None
        return tuple(found)
