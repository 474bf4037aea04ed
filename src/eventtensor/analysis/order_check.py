"""Asks whether events still order a dependence after a change of the program or its events.

Passes that drop events or share memory ask it. The proof itself is in check.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.expr import Node
from ..ir.ops import body_exprs
from ..ir.program import Program
from ..ir.tensor import region_exprs
from ..ir.walk import loads_of
from .coverage import is_ordered_by_closure, proved_order, unordered_part
from .deps import Dependence
from .derive import Derived
from .order_graph import add_fences
from .sets.budget import QUESTION, OutOfBudget, budget


class OrderCheck:
    """Decides which dependences of a program the events `derived` order. `known` are dependences
    that may help: the proof uses those that it finds true."""

    def __init__(self, program: Program, derived: Derived, known: Iterable[Dependence]) -> None:
        known = tuple(known)
        self.program, self.derived = program, derived
        self.events = derived.uses(program)
        if any(d.is_later_iteration for d in known):
            add_fences(self.events.graph)
        plain = [(d.source.call.name, d.sink.call.name, d.relation) for d in known]
        self._proved_order = proved_order(program, self.events, [*derived.hints, *plain])

    def is_ordered(self, d: Dependence) -> bool:
        """True if events order a dependence. False also if the body waits in a loop, or if the
        proof takes too many steps."""
        if any(w.loop for w in self.derived.waits.get(d.sink.call.name, ())):
            return False
        try:
            with budget(QUESTION):
                left = unordered_part(self.program, self.events, self._proved_order, d)
        except OutOfBudget:
            return False
        return bool(left.is_empty()) or is_ordered_by_closure(self.events, d, left)


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


def loaded_tensors(program: Program) -> frozenset[str]:
    """The tensors of which a value is in an index, an extent, a count or a map."""
    exprs: list[Node] = [e.count for e in program.events if e.count is not None]
    for p in program.calls:
        exprs += [a.extent for a in p.axes]
        for r in (*p.call.regions, *(p.call.waits or ()), *(p.call.notifies or ())):
            exprs += region_exprs(r)
        exprs += body_exprs(p.call.body)
    return frozenset(load.tensor for load in loads_of(*exprs))
