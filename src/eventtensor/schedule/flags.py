"""When the elements of a scratch tensor may carry their flags, and the events that then fall away.

A flag orders nothing but its own word. So every element must be written once a launch, every reader
must look at the flags, and all other order that the events gave must hold without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..analysis.access import accesses
from ..analysis.deps import Dependence, dependences
from ..analysis.derive import Derived
from ..analysis.event_maps import Events
from ..analysis.order_check import OrderCheck, loaded_tensors, without_events
from ..analysis.wait_reads import unordered_reads
from ..ir.program import Program
from ..ir.tensor import Role, Rows
from .tile_ownership import call_of


@dataclass(frozen=True)
class Lost:
    """Why events cannot go: empty if they can. `tensor`: it would help if that had flags too."""

    why: str = ""
    tensor: str = ""


@dataclass(frozen=True)
class FlagQuestion:
    """A proved program with its events."""

    program: Program
    derived: Derived
    events: Events

    def tensors_of(self, event: str) -> tuple[str, ...]:
        """The tensors that travel from the notifiers of an event to its waiters."""
        makers = {n.node for n in self.events.notifies if n.event.name == event}
        takers = {call_of(w.node) for w in self.events.waits if w.event.name == event}
        found = {
            d.tensor for d in dependences(self.program).deps
            if d.kind == "raw" and d.source.call.name in makers and d.sink.call.name in takers
        }
        return tuple(t.name for t in self.program.tensors if t.name in found)

    def refusal(self, tensor: str, decides: bool = False) -> str:
        """Why the elements of a tensor cannot be words with flags; empty if they can. Those whose
        values decide indices can only if another event is waited for before these are read."""
        t, found = self.program.tensor(tensor), accesses(self.program)[tensor]
        if t.role is not Role.scratch:
            return f"{tensor} is no scratch"
        if t.dtype.size > 4:
            return f"an element of {tensor} and a flag do not fit one word"
        facts = t.bound is not None or t.monotone or t.distinct
        if not decides and (facts or tensor in loaded_tensors(self.program)):
            return f"values of {tensor} decide indices, extents or counts"
        if any(a.accumulates for a in found):
            return f"{tensor} is accumulated into"
        if any(a.is_data_dependent for a in found):
            return f"run-time data decides what is read or written of {tensor}"
        if any(a.region.pad or any(isinstance(x, Rows) for x in a.region.axes) for a in found):
            return f"{tensor} is read padded or by gathered rows"
        if any(d.tensor == tensor and d.kind != "raw" for d in dependences(self.program).deps):
            return f"elements of {tensor} are written again in a launch"
        return ""

    def lost(
        self, gone: frozenset[str], flagged: frozenset[str], more: frozenset[str],
        found: frozenset[tuple[str, str]] = frozenset(),
    ) -> Lost:
        """Order that only the events `more` and `gone` gave, apart from the way from a write to a
        read of the tensors `flagged`, or of a tensor by a call that are in `found`. Nothing is
        without `gone` alone, so only what `more` may take part in is asked again, as in
        analysis/check.py."""
        gone |= more
        if any(w.loop for ws in self.derived.waits.values() for w in ws if w.event in gone):
            return Lost("a body waits for it in a loop")
        if any(w.event in gone for ws in self.derived.headers.values() for w in ws):
            return Lost("every worker waits before a grid")
        deps = dependences(self.program).deps
        order = OrderCheck(self.program, without_events(self.derived, gone), deps)
        for d in deps:
            exempt = d.tensor in flagged or (d.tensor, call_of(d.sink.call.name)) in found
            if (exempt and d.kind == "raw") or not self._touches(d, more):
                continue
            if not order.is_ordered(d):
                return Lost(f"it also puts {call_of(d.source.call.name)} before "
                            f"{call_of(d.sink.call.name)} on {d.tensor} ({d.kind})",
                            d.tensor if d.kind == "raw" else "")
        for u in unordered_reads(self.program, order.events):
            reader = call_of(u.sink.call.name)
            return Lost(f"it also guards {u.tensor}, which a wait of {reader} reads")
        return Lost()

    @cached_property
    def _links(self) -> list[tuple[str, str, str]]:
        """(event, notifier, waiter), by name."""
        return [(w.event.name, n.node, w.node) for w in self.events.waits
                for n in self.events.notifies if n.event.name == w.event.name]

    @cached_property
    def _after(self) -> dict[str, set[str]]:
        """The nodes that paths of events lead to from each node, itself included."""
        return _closure({*self.events.graph.edges, *((n, w) for _, n, w in self._links)})

    def _touches(self, d: Dependence, events: frozenset[str]) -> bool:
        """True if a path from source to sink leads through one of the events."""
        after, source, sink = self._after, d.source.call.name, d.sink.call.name
        return any(
            e in events and n in after.get(source, {source}) and sink in after.get(w, {w})
            for e, n, w in self._links
        )


def _closure(links: set[tuple[str, str]]) -> dict[str, set[str]]:
    after: dict[str, set[str]] = {}
    for a, b in links:
        after.setdefault(a, set()).add(b)
    found: dict[str, set[str]] = {}
    for start in after:
        seen, todo = {start}, [start]
        while todo:
            fresh = after.get(todo.pop(), set()) - seen
            seen |= fresh
            todo += fresh
        found[start] = seen
    return found
