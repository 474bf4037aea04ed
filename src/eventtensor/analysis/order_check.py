"""The question of the proof (check.py) for those who would do without some of the events,
or with less memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.expr import Node
from ..ir.ops import body_exprs
from ..ir.program import Program
from ..ir.tensor import region_exprs
from ..ir.walk import loads_of
from .coverage import closed, shown, unordered
from .deps import Dependence
from .derive import Derived
from .order_graph import add_fences
from .sets.budget import QUESTION, OutOfBudget, budget


class Ordered:
    """Asks which dependences of a program the events `derived` order. `known` are dependences that
    may help: of what they relate, the proof uses what it finds true."""

    def __init__(self, program: Program, derived: Derived, known: Iterable[Dependence]) -> None:
        known = tuple(known)
        self.program, self.derived = program, derived
        self.events = derived.uses(program)
        if any(d.later for d in known):
            add_fences(self.events.graph)
        plain = [(d.source.call.name, d.sink.call.name, d.relation) for d in known]
        self._shown = shown(program, self.events, [*derived.hints, *plain])

    def holds(self, d: Dependence) -> bool:
        """False as well where it cannot tell: for bodies that wait chunk by chunk, and for what
        takes too many steps."""
        if any(w.chunk for w in self.derived.waits.get(d.sink.call.name, ())):
            return False
        try:
            with budget(QUESTION):
                left = unordered(self.program, self.events, self._shown, d)
        except OutOfBudget:
            return False
        return bool(left.is_empty()) or closed(self.events, d, left)


def without_events(derived: Derived, gone: frozenset[str]) -> Derived:
    return replace(
        derived,
        events=tuple(e for e in derived.events if e.name not in gone),
        headers={n: tuple(w for w in ws if w.event not in gone)
                 for n, ws in derived.headers.items()},
        waits={n: tuple(w for w in ws if w.event not in gone) for n, ws in derived.waits.items()},
        notifies={n: tuple(x for x in xs if x.event not in gone)
                  for n, xs in derived.notifies.items()},
    )


def loaded(program: Program) -> frozenset[str]:
    """Tensors whose values stand in an index, an extent, a count or a map."""
    exprs: list[Node] = [e.count for e in program.events if e.count is not None]
    for p in program.calls:
        exprs += [a.extent for a in p.axes]
        for r in (*p.call.regions, *(p.call.waits or ()), *(p.call.notifies or ())):
            exprs += region_exprs(r)
        exprs += body_exprs(p.call.body)
    return frozenset(load.tensor for load in loads_of(*exprs))
