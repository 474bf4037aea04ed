"""Proves that every waited cell gets exactly as many notifies as its count.

isl compares affine counts. Other counts are compared by form or factor by factor. If run-time data
decides, and some data makes the counts right, they are an obligation.
"""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from ..ir.expr import Const, Node, add, mul
from ..ir.plan import Nest
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.walk import evaluate, loads_of
from ..progress import doing
from ..source_location import UNKNOWN
from .check_report import Kind, Obligation, Problem, Witness
from .event_maps import Events, EventUse
from .notify_counts import ONE, Supply, same_product, supply, target_pw
from .sets.isl_text import NotAffine
from .sets.space import Scope, Side, cell_names
from .sets.witness import image_of, smallest, task_of
from .totals import Notifies, TotalMismatch, find_total_mismatch, gives_one_each


def count_problems(
    program: Program, events: Events, event: EventTensor, obligations: list[Obligation]
) -> list[Problem]:
    """The first problem of an event: a cell that expects more or fewer notifies than it gets."""
    doing(f"the counts of event '{event.name}'")
    each = [
        (n, nest, supply(program, events.graph.nodes[n.node], event, nest))
        for n in events.notifies
        if n.event.name == event.name
        for nest in n.nests
    ]
    by = [(events.graph.nodes[n.node], nest) for n, nest, _ in each]
    given = _Notifiers([n for n, _, _ in each], [s for _, _, s in each], by)
    for wait in events.waits:
        if wait.event.name == event.name:
            found = _count_problems_of_wait(program, events, wait, given, obligations)
            if found:
                return found
    return []


@dataclass(frozen=True)
class _Notifiers:
    """The notifies of an event, with the supply, the call and the nest of each."""

    notifies: list[EventUse]
    supplies: list[Supply]
    by: Notifies


def _count_problems_of_wait(
    program: Program,
    events: Events,
    wait: EventUse,
    given: _Notifiers,
    obligations: list[Obligation],
) -> list[Problem]:
    event, place = wait.event, events.graph.nodes[wait.node].call.place
    supplies = given.supplies
    assert event.count is not None
    waited = events.map(wait).range()
    total = _supply_by_form(events, wait, given.notifies, supplies)
    if total is not None and all(waited.is_subset(s.cells) for s in supplies):
        if add(total, mul(Const(-1), event.count)) == Const(0):
            return []
        if loads_of(event.count, total):
            return _compare_by_form(program, events, wait, total, obligations)
    if loads_of(event.count) or any(n.is_data_dependent for n in given.notifies):
        return _compare_data(program, events, wait, given, obligations)
    if any(s.exact is None for s in supplies):
        return _compare_factors(program, wait, waited, supplies, place)
    try:
        target = target_pw(program, event.count, len(event.shape))
    except NotAffine:
        return [_count_unproved(event, place)]
    exact = None
    for s in supplies:
        exact = s.exact if exact is None else exact.union_add(s.exact)
    return _compare_exact(events, wait, target, exact, place)


def _compare_data(
    program: Program,
    events: Events,
    wait: EventUse,
    given: _Notifiers,
    obligations: list[Obligation],
) -> list[Problem]:
    """Counts where data decides which tasks notify a cell. They are refuted if no data makes them
    right, proved if all data does, and otherwise an obligation."""
    event, node = wait.event, events.graph.nodes[wait.node]
    silent = events.map(wait).range()
    for s in given.supplies:
        silent = silent.subtract(s.cells)
    if not silent.is_empty() and _always_positive(program, wait, silent):
        return [_count_problem(events, wait, Kind.count_high, silent, None, node.call.place)]
    wrong = find_total_mismatch(program, events, wait, given.by)
    if wrong is not None:
        return [_total_problem(events, wait, wrong)]
    if event.count != ONE or not gives_one_each(program, event, given.by):
        obligations.append(_count_obligation(event, node, given.by))
    return []


def _count_obligation(event: EventTensor, node: PlacedCall, by: Notifies) -> Obligation:
    cell = f"{event.name}[{', '.join(cell_names(len(event.shape)))}]"
    tasks = " and ".join(dict.fromkeys(_notifier(placed, nest) for placed, nest in by))
    return Obligation(
        f"{event.count} is the number of notifies of {cell}, for each cell that '{node.call.name}' "
        f"waits for: {tasks}",
        event.place if event.place != UNKNOWN else node.call.place,
        f"make count= of {event.name} the number of these tasks, computed from the same data",
        event=event.name)


def _notifier(placed: PlacedCall, nest: Nest) -> str:
    """The tasks that notify a cell, as text."""
    axes = [a.var for a in nest.axes]
    cell = [f"{i} = {c}" for c, i in zip(cell_names(len(nest.index)), nest.index, strict=True)]
    where = f" where {' and '.join(cell)}" if cell else ""
    each = f", once for each {', '.join(axes)}" if axes else ""
    return f"the tasks ({', '.join(placed.vars)}) of '{placed.call.name}'{where}{each}"


def _compare_factors(
    program: Program, wait: EventUse, waited: isl.Set, supplies: list[Supply], place: str
) -> list[Problem]:
    """Counts that are products of varying factors are compared factor by factor."""
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


def _always_positive(program: Program, wait: EventUse, cells: isl.Set) -> bool:
    """True if the count is at least 1 on all `cells`, for all run-time data."""
    scope, names = Scope(program), cell_names(len(wait.event.shape))
    side = Side(program.calls[0], "a_")
    assert wait.event.count is not None
    scope.require(f"{scope.text(wait.event.count, side, {n: n for n in names})} <= 0")
    scope.finish()
    return bool(scope.set(names).intersect(cells).is_empty())


def _supply_by_form(
    events: Events, wait: EventUse, notifies: list[EventUse], supplies: list[Supply]
) -> Node | None:
    """The notifies that a waited cell gets, as an expression. Tasks that run-time data decides
    count if they exist. They always do if the existence of the waiter implies it."""
    total: Node = Const(0)
    for n, s in zip(notifies, supplies, strict=True):
        if s.closed_form is None:
            return None
        sure = s.guard == ONE or events.imply_notifiers(wait, n)
        total = add(total, s.closed_form if sure else mul(s.closed_form, s.guard))
    return total if supplies else None


def _compare_by_form(
    program: Program, events: Events, wait: EventUse, supplied: Node, obligations: list[Obligation]
) -> list[Problem]:
    """Counts and supplies that are both expressions over run-time data. They are refuted if no data
    makes the two equal, proved if all data does, and otherwise an obligation."""
    event = wait.event
    assert event.count is not None
    node, cells = events.graph.nodes[wait.node], cell_names(len(event.shape))
    place = node.call.place
    try:
        every, right, high, low = (
            _cells_where(program, wait, node, supplied, sign) for sign in ("", "=", ">", "<"))
    except NotAffine:
        return [_count_unproved(event, place)]
    never = every.subtract(right)
    for kind, found in ((Kind.count_high, high), (Kind.count_low, low)):
        hit = smallest(never.intersect(found))
        if hit is not None:
            cell, coords = hit[1][: len(cells)], hit[1][len(cells) :]
            return [Problem(
                kind, f"event {event.name}{list(cell)} expects {event.count} notifies but gets "
                f"{supplied}", place, f"set count={supplied}, or check the notify maps",
                Witness(tuple(hit[0].items()), (task_of(node, coords),), event=event.name,
                        cell=cell))]
    if not (high.is_empty() and low.is_empty()):
        obligations.append(Obligation(
            f"{event.count} = {supplied} for each cell {event.name}[{', '.join(cells)}] that "
            f"'{node.call.name}' waits for", event.place if event.place != UNKNOWN else place,
            f"set count={supplied}, or state the equality with p.fact", event=event.name))
    return []


def _cells_where(
    program: Program, wait: EventUse, node: PlacedCall, supplied: Node, sign: str
) -> isl.Set:
    """Cells and waiting tasks for which some data gives this comparison of the count with the
    supply."""
    assert wait.event.count is not None
    cells = cell_names(len(wait.event.shape))
    scope, side = Scope(program), Side(node, "a_")
    scope.domain(side)
    for nest in wait.nests:
        scope.visits(nest, side, cells)
    at = {c: c for c in cells}
    want, got = scope.text(wait.event.count, side, at), scope.text(supplied, side, at)
    if sign:
        scope.require(f"{want} {sign} {got}")
    scope.finish()
    return scope.set((*cells, *side.names))


def _compare_exact(
    events: Events, wait: EventUse, target: isl.PwAff, total: isl.PwAff | None, place: str
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
    events: Events, wait: EventUse, kind: Kind, cells: isl.Set, total: isl.PwAff | None, place: str
) -> Problem:
    event = wait.event
    node = events.graph.nodes[wait.node]
    pairs = events.map(wait).reverse().intersect_domain(cells)
    hit = smallest(pairs.wrap().flatten())
    assert hit is not None
    dims, values = hit
    rank = len(event.shape)
    cell, task = values[:rank], task_of(node, values[rank:])
    got = 0 if total is None else _value_at(total, dims, cell)
    assert event.count is not None
    want: Node | int = event.count
    if not loads_of(event.count):
        want = evaluate(event.count, {**dims, **{f"c{k}": v for k, v in enumerate(cell)}})
    return Problem(
        kind, f"event {event.name}{list(cell)} expects {want} notifies but {got} tasks notify it",
        place, f"set count={got} there, or check the notify maps",
        Witness(tuple(dims.items()), (task,), event=event.name, cell=cell))


def _total_problem(events: Events, wait: EventUse, wrong: TotalMismatch) -> Problem:
    event, node = wait.event, events.graph.nodes[wait.node]
    pairs = events.map(wait).reverse().intersect_params(wrong.where.params())
    hit = smallest(pairs.wrap().flatten())
    assert hit is not None
    rank = len(event.shape)
    return Problem(
        wrong.kind, f"the counts {event.count} of all cells of {event.name} add up to "
        f"{wrong.counted}, but the cells get {wrong.given} notifies in all, whatever the data",
        node.call.place, f"make count= of {event.name} the number of notifies of each cell",
        Witness(tuple(hit[0].items()), (task_of(node, hit[1][rank:]),), event=event.name,
                cell=hit[1][:rank]))


def _value_at(pw: isl.PwAff, dims: dict[str, int], cell: tuple[int, ...]) -> int:
    hit = smallest(image_of(isl.Map.from_pw_aff(pw), dims, cell))
    return hit[1][0] if hit else 0


def _count_unproved(event: EventTensor, place: str) -> Problem:
    return Problem(
        Kind.unproved, f"cannot show that the cells of {event.name} get {event.count} notifies",
        place, "use a count that is the product of the extents of the notifying grid")
