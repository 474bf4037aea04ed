"""Small tensors that say where the operands of a grid's tiles lie (the experts in use, say): the
loader reads the row of a grid once, and its lanes keep it. Where it claims the tiles it tells the
tasks what it has looked up for each, which spares them a trip to the memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.expr import Const, Load, Node, Var
from ...ir.plan import Plan, Stream, Wait
from ...ir.products import product_of
from ...ir.program import PlacedCall
from ...ir.settled import Settled
from ...ir.tensor import region_exprs
from ...ir.walk import loads_of

_MOST = 160  # elements that the lanes keep
_TOLD = 4  # numbers that are told with a tile


@dataclass(frozen=True)
class Tables:
    plan: Plan
    streams: Mapping[str, tuple[Stream, ...]]

    def of(self, p: PlacedCall) -> dict[str, tuple[Node, ...]]:
        """The tensors, and the row that the grid reads: the header waits for it, or the loader
        before its first tile."""
        return {load.tensor: load.index[:-1] for load in self._loads(p)}

    def told(self, p: PlacedCall) -> tuple[Load, ...]:
        """What the tasks are told with a tile: none where the loader waits behind its claim, since
        they have to do that wait first (with a limit)."""
        if self.after(p):
            return ()
        paged = {s.arg for s in self.streams[p.call.name]}
        own = [r for k, r in enumerate(p.call.regions) if k not in paged]
        used = loads_of(*(e for r in own for e in region_exprs(r)))
        return tuple(x for x in self._loads(p) if x in used)[:_TOLD]

    def after(self, p: PlacedCall) -> tuple[Wait, ...]:
        """Waits of the tasks that tell where operands lie."""
        events = {e for s in self.streams[p.call.name] for e in s.after}
        return tuple(w for w in self.plan.call(p.call.name).waits if w.event in events)

    def places(self, p: PlacedCall, s: Stream) -> tuple[Node, ...]:
        """What says where an operand lies, and how its pages go."""
        product = product_of(p.call.body, s.arg) if s.wide else None
        columns = () if product is None else (product.columns,)
        return (*region_exprs(p.call.regions[s.arg]), *columns)

    def _loads(self, p: PlacedCall) -> tuple[Load, ...]:
        plan, found = self.plan, dict[Load, None]()
        waits = (*plan.call(p.call.name).header, *self.after(p))
        loops = [Var(lp.var) for lp in p.loops]
        for load in loads_of(*(e for s in self.streams[p.call.name] for e in self.places(p, s))):
            *_, size = plan.program.tensor(load.tensor).shape or (None,)  # None: a lone number
            row = load.index[:-1]
            if waits and isinstance(size, Const) and size.value <= _MOST \
                    and all(x in loops for x in row) and not loads_of(load.index[-1]) \
                    and Settled(plan, p, waits).loads(load):
                found[load] = None
        return tuple(found)
