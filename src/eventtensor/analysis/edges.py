"""Edges between calls: the dependences, without those that paths of other edges imply.

Pre: a built program. Post: the transitive closure of the edges is the whole order. A pair of calls
has one edge. An edge into a loop of a body leads to an iteration node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from ..ir.plan import BodyLoop, Guard, Hazard
from ..ir.program import PlacedCall, Program
from ..progress import doing
from .access import is_header
from .deps import Dependence, dependences
from .iteration_nodes import (
    base_name,
    by_iterations,
    later_iterations,
    lift_sink,
    sliced_operand,
    starts_earlier,
)
from .order_graph import MAX_PATH, OrderGraph, iteration_order
from .sets.budget import DETOUR, OutOfBudget, budget
from .sets.versions import common_loops

MAX_EDGE_PIECES = 8  # of an edge that distinguishes the tiles of iterations
MAX_SPAN = 8  # iterations that an edge of more pieces spans

KnownOrder = tuple[str, str, isl.Map]  # order between the tasks of two calls, by name


@dataclass(frozen=True)
class Edge:
    """`sink` is a call, a header or, with `loop`, an iteration node (iteration_nodes.py)."""

    source: PlacedCall
    sink: PlacedCall
    relation: isl.Map
    is_data_dependent: bool
    guards: tuple[Guard, ...]
    loop: BodyLoop | None = None


def edges_of(program: Program) -> list[Edge]:
    """One edge for each dependence. Sinks with declared waits have none."""
    return [
        _edge_of(program, d)
        for d in dependences(program).deps
        if not is_header(d.source)
        and not d.is_later_iteration
        and (d.sink.call.waits is None or is_header(d.sink))
    ]


def _edge_of(program: Program, d: Dependence) -> Edge:
    """The edge of a dependence. It leads to the iterations of a loop if a task that waits inside
    its body starts earlier. A push task does not: it is dispatched after all that it waits for."""
    operand = None if d.sink.call.pushed else sliced_operand(program, d)
    loop = None
    if operand is not None:
        by_iteration = by_iterations(program, d, operand)
        if starts_earlier(program, d, by_iteration):
            d, loop = by_iteration, operand.loop
    return Edge(
        d.source, d.sink, d.relation, d.is_data_dependent, (Guard(d.tensor, Hazard(d.kind)),), loop
    )


def push_notes(program: Program) -> Iterator[tuple[str, str]]:
    """Notes for calls that could wait iteration by iteration under another schedule."""
    for d in dependences(program).deps:
        operand = sliced_operand(program, d) if d.sink.call.pushed else None
        if operand is not None and starts_earlier(program, d, by_iterations(program, d, operand)):
            yield (
                d.sink.call.name,
                (
                    f"waits for all slices of {d.tensor} before its body: push dispatches a task "
                    "when all that it waits for is dispatched"
                ),
            )


def drop_implied(
    program: Program, edges: list[Edge], given: Sequence[KnownOrder] = ()
) -> list[Edge]:
    """Drop edges, or parts of them, that paths of other edges and of the order `given` imply. Join
    the rest by pairs of calls.

    All can be dropped at once: in an acyclic graph, edges that span less replace each. An edge is
    kept whole if its path through the kept edges is too long to be found again."""
    edges = _drop_repeated_waits(program, edges)
    graph = _edge_graph(program, edges, given)
    rest = {id(e): _shrink(graph, e) for e in edges}
    kept = [replace(e, relation=rest[id(e)]) for e in edges if not rest[id(e)].is_empty()]
    graph = _edge_graph(program, kept, given)
    for e in edges:
        if rest[id(e)] is not e.relation and not _is_implied(graph, e):
            kept.append(e)
            graph.add(e.source.call.name, e.sink.call.name, e.relation)
    return [_widen(program, e) for e in join_edges(kept)]


def _widen(program: Program, e: Edge) -> Edge:
    """Widen an edge of many pieces between near iterations of a loop to all tiles of the iterations
    that it spans. To distinguish these tiles would cost isl more than it saves."""
    if e.is_data_dependent or e.loop or e.relation.n_basic_map() <= MAX_EDGE_PIECES:
        return e
    if common_loops(e.source, e.sink) != 1:
        return e
    m, into, out = e.relation, isl.dim_type.in_, isl.dim_type.out
    loops = m.project_out(into, 1, m.dim(into) - 1).project_out(out, 1, m.dim(out) - 1)
    least, most = loops.deltas().dim_min_val(0), loops.deltas().dim_max_val(0)
    if (
        not (least.is_int() and most.is_int())
        or least.to_python() < 1
        or most.to_python() > MAX_SPAN
    ):
        return e
    var = e.source.loops[0].var
    inner = f"{least} <= b_{var} - a_{var} <= {most}"
    return replace(e, relation=iteration_order(program, e.source, e.sink, inner))


def _drop_repeated_waits(program: Program, edges: list[Edge]) -> list[Edge]:
    """Drop what a task has waited for before: at its start, for another operand, or in an earlier
    iteration."""
    out = []
    for e in edges:
        if not e.loop:
            out.append(e)
            continue
        repeated = later_iterations(program, e.relation, e.sink)
        left = _simpler(e.relation.subtract(repeated).coalesce(), e.relation)
        for w in edges:
            if w.source is e.source and w.sink.call.name == base_name(e.sink.call.name):
                beyond = left.subtract(lift_sink(program, w.relation, e.sink)).coalesce()
                left = _simpler(beyond, left)
        if not left.is_empty():
            out.append(replace(e, relation=left))
    return out


def _simpler(left: isl.Map, relation: isl.Map) -> isl.Map:
    """The rest of a relation, if it is not more complicated."""
    smaller = left.n_basic_map() <= relation.n_basic_map() and not left.is_equal(relation)
    return left if smaller else relation


def _shrink(graph: OrderGraph, e: Edge) -> isl.Map:
    """The part of an edge that longer paths do not order, if it is not more complicated."""
    doing(f"paths beside the edge from '{e.source.call.name}' to '{e.sink.call.name}'")
    cover = None
    try:
        with budget(DETOUR):
            for cover in graph.covers(e.source.call.name, e.sink.call.name, 2, MAX_PATH):
                if e.relation.is_subset(cover):
                    return e.relation.subtract(e.relation)
            left = e.relation if cover is None else e.relation.subtract(cover).coalesce()
    except OutOfBudget:
        return e.relation
    return _simpler(left, e.relation)


def _is_implied(graph: OrderGraph, e: Edge) -> bool:
    try:
        with budget(DETOUR):
            return graph.is_implied(e.source.call.name, e.sink.call.name, e.relation, 1, MAX_PATH)
    except OutOfBudget:
        return False


def _edge_graph(program: Program, edges: list[Edge], given: Sequence[KnownOrder]) -> OrderGraph:
    graph = OrderGraph(program, [e.sink for e in edges if e.loop])
    for e in edges:
        graph.add(e.source.call.name, e.sink.call.name, e.relation)
    for source, sink, relation in given:
        graph.add(source, sink, relation)
    return graph


def join_edges(edges: list[Edge]) -> list[Edge]:
    found: dict[tuple[str, str], Edge] = {}
    for e in edges:
        key = (e.source.call.name, e.sink.call.name)
        if key in found:
            known = found[key]
            found[key] = Edge(
                e.source,
                e.sink,
                known.relation.union(e.relation).coalesce(),
                known.is_data_dependent or e.is_data_dependent,
                tuple(dict.fromkeys((*known.guards, *e.guards))),
                e.loop,
            )
        else:
            found[key] = e
    return list(found.values())
