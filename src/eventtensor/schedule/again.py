"""Events that tell nothing but numbers which their waiters can find again, from others that carry
flags: which experts are in use, from their scores. Nobody waits for who found them first.

A loader then knows where weights lie a task and two hops sooner. Its tasks take no more than its
pages, and wait for nothing else. Who finds the numbers first has a limit (device/cuda/best.cuh).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..analysis.uses import Events
from ..ir.best import best_of
from ..ir.expr import Load, Var
from ..ir.plan import Plan
from ..ir.tables import is_kept, places
from ..ir.tensor import region_exprs
from ..ir.walk import free_vars, loads_of
from .flags import FlagQuestion
from .owners import call_of

Found = tuple[str, str]  # a tensor, and a call whose loader finds its numbers


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
        """What loaders find instead of waiting for an event, or why they must wait. The events
        `gone` do not count any more, the tensors `flagged` carry flags, and for the events `others`
        it is known already what is found."""
        calls = sorted({call_of(w.node) for w in self.events.waits if w.event.name == event})
        loads = {name: self._loads(name, event) for name in calls}
        found = frozenset((x.tensor, name) for name, some in loads.items() for x in some)
        if not found:
            return found, "it is no table that the loader waits for"
        why = next(filter(None, (
            *(self._not_found(event, x, flagged) for some in loads.values() for x in some),
            *(self._not_only(name, event, some) for name, some in loads.items()))), "")
        if why:
            return frozenset(), why
        lost = self.flags.lost(gone.union(others), flagged, frozenset({event}),
                               found.union(*others.values()))
        return found, lost.why

    def _loads(self, call: str, event: str) -> list[Load]:
        """What says where the weights lie for which a loader waits."""
        p = self.plan.program.placed(call)
        streams = [s for s in self.plan.streams if s.call == call and event in s.after]
        return list(loads_of(*(e for s in streams for e in places(p, s))))

    def _not_found(self, event: str, load: Load, flagged: frozenset[str]) -> str:
        """Why a loader does not find a number itself."""
        tensor, program = load.tensor, self.plan.program
        makers = [p for p in program.calls if any(r.tensor == tensor for r in p.call.writes)]
        told = {n.node for n in self.events.notifies if n.event.name == event}
        if len(makers) != 1 or makers[0].call.grid or makers[0].call.name not in told:
            return f"{tensor} is not written by one task, which tells this event"
        (maker,) = makers
        best = best_of(program, maker, tensor)
        if best is None:
            return f"{maker.call.name} does not find {tensor} as the largest of a row"
        if best.region.tensor not in flagged:
            return f"{best.region.tensor}, from which {tensor} is found, carries no flags"
        loops = tuple(Var(lp.var) for lp in maker.loops)
        if load.index[:-1] != loops or not free_vars(*region_exprs(best.region)) <= {
                lp.var for lp in maker.loops}:
            return f"{tensor} is not read in the iteration that finds it"
        return ""

    def _not_only(self, call: str, event: str, loads: list[Load]) -> str:
        """Why tasks of a call need more of the event than pages."""
        p, found = self.plan.program.placed(call), {x.tensor for x in loads}
        paged = {s.arg for s in self.plan.streams if s.call == call and event in s.after}
        if not paged:
            return f"no weights of {call} wait for it"
        if not all(is_kept(self.plan.program, p, x) for x in loads):
            return f"the loader of {call} cannot keep a row"
        regions = [r for k, r in enumerate(p.call.regions) if k not in paged]
        exprs = [*(e for r in regions for e in region_exprs(r)), *(a.extent for a in p.call.grid)]
        if found & {*(x.tensor for x in loads_of(*exprs)), *(r.tensor for r in regions)}:
            return f"{call} reads the numbers themselves"
        return ""
