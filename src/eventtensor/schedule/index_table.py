"""Events for whose numbers alone the producer warp waits: which experts are in use. The numbers
then carry flags too, and the producer warp polls them instead of the cell (hand-off
`tagged_index`).

A step of one row with experts gains 1.1% by it, nothing else gains. It becomes a plug-in of the
kernel IR.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.event_maps import Events
from ..ir.expr import Load
from ..ir.index_tables import fits_in_warp, placement_loads
from ..ir.plan import Plan
from ..ir.program import PlacedCall
from ..ir.tensor import tile_shape
from .flags import FlagQuestion

NO_TABLE = "it is no table that the producer warp waits for"


@dataclass(frozen=True)
class TableQuestion:
    """A plan with its streams, and what is asked of flags."""

    plan: Plan
    events: Events
    flags: FlagQuestion

    def found(self, event: str, call: str) -> tuple[tuple[str, ...], str]:
        """The tensors that the producer warp polls instead of waiting, or why it waits."""
        p = self.plan.program.placed(call)
        makers = [
            self.plan.program.placed(n.node) for n in self.events.notifies if n.event.name == event
        ]
        made = {r.tensor for m in makers for r in m.call.writes}
        loads = [x for x in placement_loads(self.plan, call, event) if x.tensor in made]
        why = next(
            filter(None, (self._refusal(p, x, makers) for x in loads)), "" if loads else NO_TABLE
        )
        return tuple(dict.fromkeys(x.tensor for x in loads)), why

    def _refusal(self, p: PlacedCall, load: Load, makers: list[PlacedCall]) -> str:
        """Why the producer warp cannot take a number from words: it polls a whole row."""
        tensor = self.plan.program.tensor(load.tensor)
        if not fits_in_warp(self.plan.program, p, load):
            return f"the producer warp cannot keep a row of {load.tensor}"
        regions = [(m, r) for m in makers for r in m.call.writes if r.tensor == load.tensor]
        if any(m.call.grid or tile_shape(r, tensor)[-1] != tensor.shape[-1] for m, r in regions):
            return f"several tasks write a row of {load.tensor}"
        return self.flags.refusal(load.tensor, decides=True)
