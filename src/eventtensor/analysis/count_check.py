"""Whether every waited cell gets exactly as many notifies as its count says."""

from __future__ import annotations

import islpy as isl

from ..ir.expr import Const, Node, add, mul
from ..ir.program import EventTensor, Program
from ..ir.walk import evaluate, loads_of
from .counts import ONE, Supply, same_product, supply, target_pw
from .report import Kind, Obligation, Problem, Witness
from .sets.space import Scope, Side, cell_names
from .sets.texts import NotAffine
from .sets.witness import at, smallest, task_of
from .uses import Events, Use


def count_problems(
    program: Program, events: Events, event: EventTensor, obligations: list[Obligation]
) -> list[Problem]:
    """Cells that expect more or fewer notifies than they get; the first of each event."""
    each = [
        (n, supply(program, events.graph.nodes[n.node], event, nest))
        for n in events.notifies
        if n.event.name == event.name
        for nest in n.nests
    ]
    notifies, supplies = [n for n, _ in each], [s for _, s in each]
    for wait in events.waits:
        if wait.event.name == event.name:
            found = _wait_problems(program, events, wait, notifies, supplies, obligations)
            if found:
                return found
    return []


def _wait_problems(
    program: Program, events: Events, wait: Use, notifies: list[Use], supplies: list[Supply],
    obligations: list[Obligation],
) -> list[Problem]:
    event, place = wait.event, events.graph.nodes[wait.node].call.place
    assert event.count is not None
    waited = events.map(wait).range()
    total = _by_form(events, wait, notifies, supplies)
    if total is not None and all(waited.is_subset(s.cells) for s in supplies):
        if add(total, mul(Const(-1), event.count)) == Const(0):
            return []
        if loads_of(event.count, total):
            return _compare_form(program, events, wait, total, place)
    if loads_of(event.count) or any(n.data for n in notifies):
        silent = waited
        for s in supplies:
            silent = silent.subtract(s.cells)
        if not silent.is_empty() and _always_positive(program, wait, silent):
            return [_count_problem(events, wait, Kind.count_high, silent, None, place)]
        obligations.append(Obligation(
            f"every cell of {event.name} gets as many notifies as its count {event.count}", place))
        return []
    if any(s.exact is None for s in supplies):
        return _compare_factors(program, wait, waited, supplies, place)
    try:
        target = target_pw(program, event.count, len(event.shape))
    except NotAffine:
        return [_count_unproved(event, place)]
    exact = None
    for s in supplies:
        exact = s.exact if exact is None else exact.union_add(s.exact)
    return _compare(events, wait, target, exact, place)


def _compare_factors(
    program: Program, wait: Use, waited: isl.Set, supplies: list[Supply], place: str
) -> list[Problem]:
    """Counts that are products of varying factors: equal factor by factor, or unproved."""
    event = wait.event
    assert event.count is not None
    try:
        if len(supplies) == 1 and waited.is_subset(supplies[0].cells) and same_product(
            program, event.count, supplies[0], len(event.shape)
        ):
            return []
    except NotAffine:
        pass
    return [_count_unproved(event, place)]


def _always_positive(program: Program, wait: Use, cells: isl.Set) -> bool:
    """True if the count is at least 1 on all of `cells`, whatever run-time data says."""
    scope, names = Scope(program), cell_names(len(wait.event.shape))
    side = Side(program.calls[0], "a_")
    assert wait.event.count is not None
    scope.require(f"{scope.text(wait.event.count, side, {n: n for n in names})} <= 0")
    scope.finish()
    return bool(scope.set(names).intersect(cells).is_empty())


def _by_form(
    events: Events, wait: Use, notifies: list[Use], supplies: list[Supply]
) -> Node | None:
    """What a waited cell gets, as an expression. Tasks that run-time data decides count only if
    they exist, unless the waiter's own existence says that they do."""
    total: Node = Const(0)
    for n, s in zip(notifies, supplies, strict=True):
        if s.closed is None:
            return None
        sure = s.guard == ONE or events.exist_given(wait, n)
        total = add(total, s.closed if sure else mul(s.closed, s.guard))
    return total if supplies else None


def _compare_form(
    program: Program, events: Events, wait: Use, supplied: Node, place: str
) -> list[Problem]:
    """Counts over run-time data: equal for all values that their bounds allow, or refuted."""
    event = wait.event
    assert event.count is not None
    node, cells = events.graph.nodes[wait.node], cell_names(len(event.shape))
    for kind, sign in ((Kind.count_high, ">"), (Kind.count_low, "<")):
        scope, side = Scope(program), Side(node, "a_")
        scope.domain(side)
        for nest in wait.nests:
            scope.visits(nest, side, cells)
        at = {c: c for c in cells}
        try:
            want = scope.text(event.count, side, at)
            scope.require(f"{want} {sign} {scope.text(supplied, side, at)}")
        except NotAffine:
            return [_count_unproved(event, place)]
        scope.finish()
        hit = smallest(scope.set((*cells, *side.names)))
        if hit is not None:
            cell, coords = hit[1][: len(cells)], hit[1][len(cells) :]
            return [Problem(
                kind, f"event {event.name}{list(cell)} expects {event.count} notifies but gets "
                f"{supplied}", place, f"set count={supplied}, or check the notify maps",
                Witness(tuple(hit[0].items()), (task_of(node, coords),), event=event.name,
                        cell=cell))]
    return []


def _compare(
    events: Events, wait: Use, target: isl.PwAff, total: isl.PwAff | None, place: str
) -> list[Problem]:
    waited = events.map(wait).range()
    silent = waited if total is None else waited.subtract(total.domain())
    cases = [(Kind.count_high, silent.intersect(target.pos_set()))]
    if total is not None:
        here = total.intersect_domain(waited)
        cases.append((Kind.count_high, target.gt_set(here)))
        cases.append((Kind.count_low, target.lt_set(here)))
    for kind, cells in cases:
        if not cells.is_empty():
            return [_count_problem(events, wait, kind, cells, total, place)]
    return []


def _count_problem(
    events: Events, wait: Use, kind: Kind, cells: isl.Set, total: isl.PwAff | None, place: str
) -> Problem:
    event = wait.event
    node = events.graph.nodes[wait.node]
    pairs = events.map(wait).reverse().intersect_domain(cells)
    hit = smallest(pairs.wrap().flatten())
    assert hit is not None
    dims, values = hit
    rank = len(event.shape)
    cell, task = values[:rank], task_of(node, values[rank:])
    got = 0 if total is None else _value(total, dims, cell)
    assert event.count is not None
    want: Node | int = event.count
    if not loads_of(event.count):
        want = evaluate(event.count, {**dims, **{f"c{k}": v for k, v in enumerate(cell)}})
    return Problem(
        kind, f"event {event.name}{list(cell)} expects {want} notifies but {got} tasks notify it",
        place, f"set count={got} there, or check the notify maps",
        Witness(tuple(dims.items()), (task,), event=event.name, cell=cell))


def _value(pw: isl.PwAff, dims: dict[str, int], cell: tuple[int, ...]) -> int:
    hit = smallest(at(isl.Map.from_pw_aff(pw), dims, cell))
    return hit[1][0] if hit else 0


def _count_unproved(event: EventTensor, place: str) -> Problem:
    return Problem(
        Kind.unproved, f"cannot show that the cells of {event.name} get {event.count} notifies",
        place, "use a count that is the product of the extents of the notifying grid")
