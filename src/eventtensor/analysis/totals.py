"""Totals of counts, where run-time data decides which cell a task notifies.

The number of all notifies does not depend on data, so the counts of all cells must add up to it.
Facts may give their sum. If data maps tasks to cells one to one, each cell gets one notify.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as pairs

import islpy as isl

from ..ir.expr import Compare, Const, Load, Node, Sum, Var, add, mul, product
from ..ir.interval import DeclaredBounds, SymbolicBounds, at_least_zero, numeric_bounds
from ..ir.plan import Nest
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.walk import free_vars, loads_of, rebuild, substitute
from .check_report import Kind
from .event_maps import Events, EventUse
from .sets.isl_text import NotAffine, isl_text
from .sets.space import Scope, Side, cell_names, cell_space
from .sets.versions import equal_loops

Notifies = list[tuple[PlacedCall, Nest]]


@dataclass(frozen=True)
class TotalMismatch:
    """The sum of all counts (`counted`) differs from the number of notifies (`given`) at the dims
    `where`, for all data."""

    kind: Kind
    where: isl.Set
    counted: Node
    given: Node


def find_total_mismatch(
    program: Program, events: Events, wait: EventUse, by: Notifies
) -> TotalMismatch | None:
    """A mismatch, if the counts do not add up to the number of notifies for any data. None if they
    do for some data, or if either number is unknown."""
    given = _notifies_in_all(by)
    if given is None or not _waits_for_all_cells(program, events, wait):
        return None
    total = _CountSum(program, wait.event)
    try:
        counted = total.all_cells()
        scope = total.scope
        scope.require(*_distinct_bounds(program, scope))
        excess = scope.text(add(counted, mul(Const(-1), given)), total.side, total.unknown)
    except NotAffine:
        return None
    scope.finish()
    right, high = scope.copy(), scope.copy()
    right.require(f"{excess} = 0")
    high.require(f"{excess} > 0")
    never = scope.set(()).subtract(right.set(()))
    if never.is_empty():
        return None
    too_high = never.intersect(high.set(()))
    if too_high.is_empty():
        return TotalMismatch(Kind.count_low, never, counted, given)
    return TotalMismatch(Kind.count_high, too_high, counted, given)


def gives_one_each(program: Program, event: EventTensor, by: Notifies) -> bool:
    """True if distinct run-time values map the tasks one to one to all cells."""
    if len(by) != 1 or len(event.shape) != 1:
        return False
    (placed, nest), given = by[0], _notifies_in_all(by)
    if placed.loops or given != event.shape[0] or not isinstance(nest.index[0], Load):
        return False
    load = nest.index[0]
    tensor = program.tensor(load.tensor)
    coords = [*placed.vars, *(a.var for a in nest.axes)]
    if sorted(map(str, load.index)) != sorted(coords):
        return False
    if len(tensor.distinct) != len(tensor.shape) or tensor.bound is None:
        return False
    return equal_loops(program, tensor.name, (placed, True), (placed, True)) == ()


def _notifies_in_all(by: Notifies) -> Node | None:
    """The number of all notifies of an event; None if data or another coordinate decides it."""
    total: Node = Const(0)
    for placed, nest in by:
        sizes = [at_least_zero(a.extent) for a in placed.axes]
        sizes += [add(a.hi, mul(Const(-1), a.lo)) for a in nest.axes]
        uneven = nest.guards or any(a.step != 1 for a in nest.axes)
        if uneven or loads_of(*sizes) or free_vars(*sizes):
            return None
        total = add(total, product(sizes))
    return total


def _waits_for_all_cells(program: Program, events: Events, wait: EventUse) -> bool:
    """True if every cell always has a waiter, and all waiters see the same counts."""
    node = events.graph.nodes[wait.node]
    if wait.is_data_dependent or loads_of(*(a.extent for a in node.axes)):
        return False
    assert wait.event.count is not None
    for load in loads_of(wait.event.count):
        if equal_loops(program, load.tensor, (node, False), (node, False)) != ():
            return False
    return bool(cell_space(program, wait.event).is_subset(events.map(wait).range()))


def _distinct_bounds(program: Program, scope: Scope) -> list[str]:
    """isl text: the bounds of tensors have as many values as their distinct elements. Without them
    there is no data."""
    out = []
    for t in program.tensors:
        if t.distinct and t.bound is not None:
            low, high = (isl_text(b, scope) for b in t.bound)
            try:
                count = isl_text(product([t.shape[k] for k in t.distinct]), scope)
            except NotAffine:
                continue
            empty = [f"{isl_text(s, scope)} < 1" for s in t.shape]
            out.append("(" + " or ".join([*empty, f"{count} <= {high} - {low} + 1"]) + ")")
    return out


class _CountSum:
    """The sum of the counts of all cells of an event. Unknown parts are variables."""

    def __init__(self, program: Program, event: EventTensor) -> None:
        self.program, self.event = program, event
        self.scope, self.side = Scope(program), Side(program.calls[0], "a_")
        self.cells = cell_names(len(event.shape))
        self.size = product([at_least_zero(s) for s in event.shape])
        self.unknown: dict[str, str] = {}

    def all_cells(self) -> Node:
        assert self.event.count is not None
        terms, const = _terms(rebuild(self.event.count, self._replace_by_fact))
        total = mul(Const(const), self.size)
        for t, scale in terms:
            below = self._previous_cell_term(t, scale, terms)
            if below is not None:  # u[c + 1] - u[c], over all c
                last = substitute(below, {self.cells[0]: self.event.shape[0]})
                first = substitute(below, {self.cells[0]: 0})
                total = add(total, mul(Const(scale), add(last, mul(Const(-1), first))))
            elif not self._is_previous_cell_term(t, scale, terms):
                total = add(total, mul(Const(scale), self._sum(t)))
        return total

    def _previous_cell_term(
        self, t: Node, scale: int, terms: list[tuple[Node, int]]
    ) -> Node | None:
        """The term that is subtracted and equals t at the next cell."""
        if len(self.cells) != 1 or self.cells[0] not in free_vars(t):
            return None
        later = {self.cells[0]: add(Var(self.cells[0]), Const(1))}
        return next((u for u, s in terms if s == -scale and substitute(u, later) == t), None)

    def _is_previous_cell_term(self, t: Node, scale: int, terms: list[tuple[Node, int]]) -> bool:
        return any(self._previous_cell_term(u, s, terms) == t for u, s in terms if s == -scale)

    def _replace_by_fact(self, n: Node) -> Node | None:
        """The expression that a fact gives for a run-time value, for all cells."""
        if not isinstance(n, Load):
            return None
        for fact in self.program.facts:
            ranges = {a.var: a.extent for a in fact.over}
            for load, value in _equations(fact.cond):
                if load.tensor != n.tensor:
                    continue
                at = {str(i): j for i, j in zip(load.index, n.index, strict=True)}
                if set(at) == set(ranges) and all(self._runs_over(at[v], ranges[v]) for v in at):
                    return substitute(value, at)
        return None

    def _runs_over(self, index: Node, extent: Node) -> bool:
        """True if an index is a cell coordinate that runs over this extent."""
        named = dict(zip(self.cells, self.event.shape, strict=True))
        return isinstance(index, Var) and named.get(index.name) == extent

    def _sum(self, t: Node) -> Node:
        """The sum of a term over all cells."""
        if not free_vars(t):
            return mul(t, self.size)
        stated = self._sum_by_fact(t)
        if stated is not None:
            return stated
        name = f"the sum of {t}"
        if name not in self.unknown:
            self.unknown[name] = v = self.scope.fresh("t")
            cells: dict[str, SymbolicBounds] = {c: (Const(0), None) for c in self.cells}
            scope = DeclaredBounds(self.program, cells)
            low, high = numeric_bounds(t, scope.known_numbers)
            size = isl_text(self.size, self.scope)
            self.scope.require(*([] if low is None else [f"{v} >= {low} * ({size})"]),
                               *([] if high is None else [f"{v} <= {high} * ({size})"]))
        return Var(name)

    def _sum_by_fact(self, t: Node) -> Node | None:
        """The sum, if a fact has the sum of all elements."""
        sizes = [s.value for s in self.event.shape if isinstance(s, Const)]
        if len(sizes) != len(self.event.shape):
            return None
        each = [substitute(t, dict(zip(self.cells, c, strict=True)))
                for c in pairs(*map(range, sizes))]
        for fact in self.program.facts:
            if fact.over or not isinstance(fact.cond, Compare) or fact.cond.op != "==":
                continue
            terms, const = _terms(add(fact.cond.a, mul(Const(-1), fact.cond.b)))
            found = dict(terms)
            scales = {found.pop(e, 0) for e in each}
            if scales in ({1}, {-1}):
                rest: Node = Const(const)
                for other, scale in found.items():
                    rest = add(rest, mul(Const(scale), other))
                return mul(Const(-scales.pop()), rest)
        return None


def _terms(e: Node) -> tuple[list[tuple[Node, int]], int]:
    match e:
        case Const(v):
            return [], v
        case Sum(terms, const):
            return list(terms), const
        case _:
            return [(e, 1)], 0


def _equations(cond: Node) -> list[tuple[Load, Node]]:
    """An equation solved for each run-time value whose tensor occurs in it once."""
    if not isinstance(cond, Compare) or cond.op != "==":
        return []
    terms, const = _terms(add(cond.a, mul(Const(-1), cond.b)))
    out = []
    for load, scale in terms:
        value: Node = Const(const)
        for other, s in terms:
            if other is not load:
                value = add(value, mul(Const(s), other))
        if isinstance(load, Load) and abs(scale) == 1 and load.tensor not in {
            other.tensor for other in loads_of(value)
        }:
            out.append((load, mul(Const(-scale), value)))
    return out
