"""The hand-offs of a plan (ir.plan.HandoffKind), as the writers of tasks and bodies ask for them.

An edge by `same_worker`, `tagged` or `recompute` has no wait, and an event with no other edge has
no notify and no cells. An edge by `tagged_index` has no wait of the producer warp. Operands that
come tagged or in bulk are staged in the arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ...ir.expr import Node
from ...ir.interval import nonnegative, numeric_bounds
from ...ir.plan import CallPlan, HandoffKind, Notify, Plan, Wait
from ...ir.program import Call
from ...targets.target import CudaTarget
from ..cpp.sync import Edges
from .threads import THREADS

_COUNTED = (HandoffKind.counter, HandoffKind.bulk, HandoffKind.tagged_index)


class HandoffEdges(Edges):
    """A GPU may have no bulk copies, and so no producer warp: then those operands are
    read in place, and what a producer warp would recompute is waited for."""

    def __init__(self, plan: Plan, target: CudaTarget) -> None:
        self.plan, self.costs = plan, target.costs.handoff
        self.ahead = self.costs.max_prefetch_elements
        self.flagged = plan.tagged_tensors
        self.kinds = {(h.event, h.call): h.kind for h in plan.handoffs}

    @cached_property
    def has_bulk(self) -> bool:
        """True if some operand is copied in bulk."""
        return any(h.kind is HandoffKind.bulk for h in self.plan.handoffs)

    def _counted(self, event: str, call: str) -> bool:
        return self.kinds.get((event, call), HandoffKind.counter) in _COUNTED

    def waits(self, call: CallPlan) -> tuple[Wait, ...]:
        return tuple(w for w in super().waits(call) if self._counted(w.event, call.call))

    def notifies(self, call: CallPlan) -> tuple[Notify, ...]:
        return tuple(n for n in call.notifies if self.counts(n.event))

    def counts(self, event: str) -> bool:
        kinds = [k for (e, _), k in self.kinds.items() if e == event]
        return not kinds or any(k in _COUNTED for k in kinds)

    def finds(self, call: Call) -> bool:
        return HandoffKind.recompute in (
            kind for (_, c), kind in self.kinds.items() if c == call.name
        )

    # ---- the frame of the kernel ---------------------------------------------------------------

    def defines(self) -> list[str]:
        return [f"#define ET_BULK {int(self.has_bulk)}"]

    def includes(self) -> list[str]:
        again = any(h.kind is HandoffKind.recompute for h in self.plan.handoffs)
        flags = ['#include "cuda/sync/tagged.cuh"'] if self.flagged else []
        return flags + ['#include "cuda/ops/best.cuh"'] * again

    def begin(self) -> list[str]:
        """What all threads do once a launch; they meet before the first task."""
        return ["worker.bulk_loader.begin();"] if self.has_bulk else []

    def before_copies(self, call: Call) -> list[str]:
        copied = any(self.in_bulk(call, k) for k in range(len(call.reads)))
        return ["et::fence_shared_reads();"] if copied else []

    def words_first(self, call: Call, waits: tuple[Wait, ...]) -> bool:
        writers = self._writers(r.tensor for r in call.reads if self.has_flags(r.tensor))
        events = {w.event for w in waits}
        notifiers = {c.call for c in self.plan.calls for n in c.notifies if n.event in events}
        return bool(writers and notifiers) and \
            self._latest(call, writers) < self._latest(call, notifiers)

    def _writers(self, tensors: Iterable[str]) -> set[str]:
        names = set(tensors)
        return {p.call.name for p in self.plan.program.calls for r in p.call.writes
                if r.tensor in names}

    def _latest(self, call: Call, names: Iterable[str]) -> tuple[bool, tuple[int, ...]]:
        """A call that comes later in the program has run an iteration before."""
        calls, wanted = self.plan.program.calls, set(names)
        here = next(p.position for p in calls if p.call is call)
        return max((p.position < here, p.position) for p in calls if p.call.name in wanted)

    # ---- operands --------------------------------------------------------------------------------

    def slots(self, places: Sequence[Node]) -> list[int]:
        """All that there may be, as far as that is known and registers allow."""
        loads = self.costs.tagged_loads_in_flight
        most = [numeric_bounds(n, nonnegative)[1] for n in places]
        all_ = [loads if n is None else max(1, -(-n // THREADS)) for n in most]
        share = max(1, loads // max(1, len(places)))
        return all_ if sum(all_) <= loads else [min(n, share) for n in all_]

    def staged(self, call: Call) -> tuple[int, ...]:
        return tuple(
            k for k, r in enumerate(call.reads)
            if self.has_flags(r.tensor) or self.in_bulk(call, k)
        )

    def in_bulk(self, call: Call, arg: int) -> bool:
        tensor = call.reads[arg].tensor
        return any(
            h.kind is HandoffKind.bulk and h.call == call.name and tensor in h.tensors
            for h in self.plan.handoffs
        )
