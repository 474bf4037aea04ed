"""Events that tell nothing but numbers which their waiters can find again, from others that carry
flags: which experts are in use, from their scores. Nobody waits for who found them first.

A producer warp then knows where weights lie a task and two hops sooner. Its tasks take no more than
its pages, and wait for nothing else. Who finds the numbers first has a limit (cuda/ops/best.cuh).
A step of one row with experts gains 2.9% by it, nothing else gains. It becomes a plug-in of the
kernel IR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis.access import data_reads
from ..analysis.event_maps import Events
from ..ir.best import best_of, writer_of
from ..ir.expr import Load, Var
from ..ir.index_tables import fits_in_warp, placement_loads
from ..ir.plan import Plan
from ..ir.tensor import region_exprs
from ..ir.walk import free_vars
from .flags import FlagQuestion
from .index_table import NO_TABLE
from .tile_ownership import call_of

Found = tuple[str, str]  # a tensor, and a call whose producer warp finds its numbers


@dataclass(frozen=True)
class AgainQuestion:
    """A plan with its streams, and what is asked of flags."""

    plan: Plan
    events: Events
    flags: FlagQuestion

    def found(
        self, event: str, gone: frozenset[str], flagged: frozenset[str],
        others: Mapping[str, frozenset[Found]],
    ) -> tuple[frozenset[Found], str]:
        """What producer warps find instead of waiting for an event, or why they must wait. The
        events `gone` do not count any more, the tensors `flagged` carry flags, and for the events
        `others` it is known already what is found."""
        calls = sorted({call_of(w.node) for w in self.events.waits if w.event.name == event})
        loads = {name: placement_loads(self.plan, name, event) for name in calls}
        found = frozenset((x.tensor, name) for name, some in loads.items() for x in some)
        if not found:
            return found, NO_TABLE
        why = next(filter(None, (
            *(self._not_found(name, event, x, flagged)
              for name, some in loads.items() for x in some),
            *(self._not_only(name, event, some) for name, some in loads.items()))), "")
        if why:
            return frozenset(), why
        lost = self.flags.lost(gone.union(others), flagged, frozenset({event}),
                               found.union(*others.values()))
        return found, lost.why

    def _not_found(self, call: str, event: str, load: Load, flagged: frozenset[str]) -> str:
        """Why a producer warp does not find a number itself."""
        tensor, program = load.tensor, self.plan.program
        told = {n.node for n in self.events.notifies if n.event.name == event}
        maker, best = writer_of(program, tensor), best_of(program, tensor)
        if maker is None or maker.call.name not in told:
            return f"{tensor} is not written by one task, which tells this event"
        if best is None:
            return f"{maker.call.name} does not find {tensor} as the largest of a row"
        if best.region.tensor not in flagged:
            return f"{best.region.tensor}, from which {tensor} is found, carries no flags"
        loops = tuple(Var(lp.var) for lp in maker.loops)
        own = tuple(Var(lp.var) for lp in program.placed(call).loops)
        if not loops == own == load.index[:-1] or not free_vars(*region_exprs(best.region)) <= {
                v.name for v in loops}:
            return f"{tensor} is not read in the iteration that finds it"
        return ""

    def _not_only(self, call: str, event: str, loads: Sequence[Load]) -> str:
        """Why tasks of a call need more of the event than pages."""
        program, p = self.plan.program, self.plan.program.placed(call)
        paged = {s.arg for s in self.plan.streams if s.call == call and event in s.wait_events}
        if not paged:
            return f"no weights of {call} wait for it"
        if not all(fits_in_warp(program, p, x) for x in loads):
            return f"the producer warp of {call} cannot keep a row"
        rest = replace(p.call, reads=tuple(r for k, r in enumerate(p.call.reads) if k not in paged))
        used = {r.tensor for r in (*rest.regions, *data_reads(program, rest))}
        if any(x.tensor in used for x in loads):
            return f"{call} reads the numbers themselves"
        return ""
