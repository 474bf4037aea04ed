"""Proves that events order every conflict: directly, by a bounded chain, or by an exact closure.

Events whose maps read run-time data order tasks too. A conflict and the wait or notify that covers
it then share one scope, so that both use the same run-time values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import islpy as isl

from ..ir.program import EventTensor, Program
from .access import Access, is_header
from .deps import Dependence
from .event_maps import Events, EventUse
from .order_graph import MAX_PATH, OrderGraph
from .sets.budget import CLOSURE, OutOfBudget, budget
from .sets.space import Scope, Side, sides_of, task_domain
from .sets.versions import common_loops, tile_before_text


def proved_order(
    program: Program, events: Events, hints: Iterable[tuple[str, str, isl.Map]]
) -> OrderGraph:
    """The `hints` that direct events prove, as a graph. Paths through hints stay simple where paths
    through the maps of the events would not."""
    graph = OrderGraph(program, events.graph.iteration_nodes.values())
    for source, sink, relation in hints:
        direct = events.graph.direct(source, sink)
        if direct is not None and relation.is_subset(direct):
            graph.add(source, sink, relation)
    return graph


def unordered_part(program: Program, events: Events, known: OrderGraph, dep: Dependence) -> isl.Map:
    """The part of a dependence that no event and no bounded chain of events orders. `known` is
    order that is proved already."""
    source, sink = dep.source.call.name, dep.sink.call.name
    if is_header(dep.source):
        return dep.relation
    for graph, longest in ((events.graph, 1), (known, MAX_PATH), (events.graph, MAX_PATH)):
        if graph.is_implied(source, sink, dep.relation, 1, longest):
            return dep.relation.subtract(dep.relation)
    left = events.graph.unordered_part(source, sink, dep.relation)
    return left if dep.accesses is None else _unordered_by_data(program, events, dep, left)


def is_ordered_by_closure(events: Events, dep: Dependence, left: isl.Map) -> bool:
    """True if the transitive closure of all edges orders `left`, and isl has it exactly."""
    try:
        with budget(CLOSURE):
            closure, exact = _edges_to(events.graph, dep).transitive_closure()
            want = _with_tuple_names(left, dep.source.call.name, dep.sink.call.name)
            return bool(exact and want.is_subset(closure))
    except OutOfBudget:
        return False


def _edges_to(graph: OrderGraph, dep: Dependence) -> isl.UnionMap:
    """Edges on paths to the sink, between tasks that always exist."""
    source, sink = dep.source.call.name, dep.sink.call.name
    useful = graph.ancestors(sink) | {sink}
    total = isl.UnionMap("{ }")
    for (a, b), m in graph.edges.items():
        if a in useful and b in useful and graph.certain_pairs(source, b) is None:
            total = total.union(_with_tuple_names(m, a, b))
    return total


def _with_tuple_names(m: isl.Map, source: str, sink: str) -> isl.UnionMap:
    named = m.set_tuple_name(isl.dim_type.in_, _tuple(source))
    return isl.UnionMap.from_map(named.set_tuple_name(isl.dim_type.out, _tuple(sink)))


def _tuple(name: str) -> str:
    return "T_" + name.replace("#", "_h_")


# ---- events that run-time data maps --------------------------------------------------------


def _unordered_by_data(program: Program, events: Events, dep: Dependence, left: isl.Map) -> isl.Map:
    """Subtract conflicts covered by an event whose map reads run-time data.

    A wait of the sink on cell w covers source p if p comes before some notifier of w; a notify of
    the source on cell n covers sink c if c comes after some waiter on n."""
    assert dep.accesses is not None
    source, sink = dep.source.call.name, dep.sink.call.name
    waits = [w for w in events.waits if w.node == sink and w.is_data_dependent]
    notifies = [n for n in events.notifies if n.node == source and n.is_data_dependent]
    if not waits and not notifies:
        return left
    scope, sides, rows = _open_conflict(program, dep.accesses)
    visible: list[str] = []
    tests: list[tuple[int, int, isl.Map, bool]] = []
    for use, side, is_wait in [(w, sides[1], True) for w in waits] + [
        (n, sides[0], False) for n in notifies
    ]:
        reach = _before_cell(events, source, use) if is_wait else _after_cell(events, sink, use)
        for cell in _cells(scope, use, side if is_wait else side.after_body(), rows[is_wait]):
            tests.append((len(visible), len(cell), reach, is_wait))
            visible += cell
    scope.finish()
    names_a, names_b = sides[0].names, sides[1].names
    rest = scope.map(names_a, (*names_b, *visible))
    wide = isl.Map.universe(rest.get_space())
    for at, width, reach, is_wait in tests:
        rest = rest.subtract(_lift(wide, len(names_a), len(names_b), at, width, reach, is_wait))
    total = rest.dim(isl.dim_type.out)
    return left.intersect(
        rest.project_out(isl.dim_type.out, len(names_b), total - len(names_b))
    ).coalesce()


def _open_conflict(
    program: Program, pair: tuple[Access, Access]
) -> tuple[Scope, tuple[Side, Side], dict[bool, list[str]]]:
    """A conflict whose loads are not related yet, and the row variables of each side."""
    a, b = pair
    scope, sides = Scope(program), sides_of(a.node, b.node, common_loops(a.node, b.node))
    elements = tuple(scope.fresh("e") for _ in a.region.axes)
    rows: dict[bool, list[str]] = {}
    for access, side, is_sink in ((a, sides[0], False), (b, sides[1], True)):
        known = len(scope.aux)
        scope.domain(side)
        scope.elements(access.region, side, elements)
        rows[is_sink] = [v for v in scope.aux[known:] if v.startswith("k_")]
    if a.node is b.node:
        scope.require(tile_before_text(a.node))
    return scope, sides, rows


def _cells(scope: Scope, use: EventUse, side: Side, rows: list[str]) -> list[tuple[str, ...]]:
    """Cells that the task always visits, as fresh variables. Each nest variable is taken to be a
    row of the conflicting region. If the row is in range, it is a value of that variable."""
    out = []
    for nest in use.nests:
        choices: list[dict[str, str]] = [{}]
        for axis in nest.axes:
            choices = [{**c, axis.var: r} for c in choices for r in rows]
        for bound in choices:
            inside = [
                f"{scope.text(a.lo, side, bound)} <= {bound[a.var]} "
                f"< {scope.text(a.hi, side, bound)}" for a in nest.axes
            ] + [scope.cond(g, side, bound) for g in nest.guards]
            cell = tuple(scope.fresh("w") for _ in nest.index)
            exact = " and ".join(
                f"{c} = {scope.text(i, side, bound)}" for c, i in zip(cell, nest.index, strict=True)
            )
            nowhere = " and ".join(f"{c} = -1" for c in cell)
            inside_text = " and ".join(inside) or "0 = 0"
            outside = " or ".join(f"not ({t})" for t in inside) or "0 = 1"
            scope.require(f"(({inside_text} and {exact}) or (({outside}) and {nowhere}))")
            out.append(cell)
    return out


def _before_cell(events: Events, source: str, wait: EventUse) -> isl.Map:
    """source task -> cells with a notifier that comes after the task, or is it."""
    return _reached_cells(
        events,
        source,
        wait.event,
        events.notifies,
        lambda notifier: _paths(events, source, notifier),
    )


def _after_cell(events: Events, sink: str, notify: EventUse) -> isl.Map:
    """sink task -> cells with a waiter that comes before the task, or is it."""
    return _reached_cells(
        events,
        sink,
        notify.event,
        events.waits,
        lambda waiter: [m.reverse() for m in _paths(events, waiter, sink)],
    )


def _reached_cells(
    events: Events,
    node: str,
    event: EventTensor,
    uses: tuple[EventUse, ...],
    paths: Callable[[str], list[isl.Map]],
) -> isl.Map:
    """task of `node` -> cells that the task uses, or a task which it reaches by `paths`."""
    domain = task_domain(events.graph.program, events.graph.nodes[node])
    every = isl.Map.from_domain(domain).add_dims(isl.dim_type.out, len(event.shape))
    total = every.subtract(every)
    for u in uses:
        if u.event.name == event.name and not u.is_data_dependent:
            cells = events.map(u)
            found = [m.apply_range(cells) for m in paths(u.node)]
            for f in [cells, *found] if u.node == node else found:
                total = total.union(f)
    return total


def _paths(events: Events, source: str, sink: str) -> list[isl.Map]:
    """Order by one or two edges, through tasks that exist if either end does."""
    found = [events.graph.direct(source, sink), events.graph.two_steps(source, sink)]
    sure = events.graph.certain_pairs(source, sink)
    other = events.graph.certain_pairs(sink, source)
    if sure is not None:
        found = [None if f is None else f.intersect(sure) for f in found]
    if other is not None:
        found = [None if f is None else f.intersect(other.reverse()) for f in found]
    return [f for f in found if f is not None]


def _lift(
    wide: isl.Map, n_a: int, n_b: int, at: int, width: int, reach: isl.Map, is_wait: bool
) -> isl.Map:
    """`reach` (task -> cell) as a condition on (source) -> (sink, cell variables)."""
    out = isl.dim_type.out
    lifted = reach if is_wait else reach.reverse()
    total = wide.dim(out)
    if is_wait:
        lifted = lifted.insert_dims(out, width, total - n_b - at - width)
        lifted = lifted.insert_dims(out, 0, n_b + at)
    else:
        lifted = isl.Map.from_range(lifted.reverse().wrap().flatten())
        lifted = lifted.insert_dims(out, n_b, at)
        lifted = lifted.insert_dims(out, n_b + at + width, total - n_b - at - width)
        lifted = lifted.insert_dims(isl.dim_type.in_, 0, n_a)
    return wide.intersect(lifted)

