"""Edges between calls: what must be ordered, without what paths of other edges imply.

Pre: a built program. Post: edges whose transitive closure is the whole order, joined by pairs of
calls; an edge into a loop of a body leads to a chunk node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from ..ir.plan import Chunk, Guard, Hazard
from ..ir.program import PlacedCall, Program
from ..progress import doing
from .access import is_header
from .deps import Dependence, dependences
from .iteration_nodes import base_name, later_too, lift_sink, operand_of, refined, worthwhile
from .order_graph import PATH, OrderGraph, iterations
from .sets.budget import DETOUR, OutOfBudget, budget
from .sets.versions import common_loops

EXACT = 8  # pieces of an edge that tells tiles of iterations apart
SPAN = 8  # iterations that an edge of more pieces may span

Given = tuple[str, str, isl.Map]  # an order of tasks of two calls, by name


@dataclass(frozen=True)
class Edge:
    """`sink` is a call, a header or, with `chunk`, a chunk node (see iteration_nodes.py)."""

    source: PlacedCall
    sink: PlacedCall
    relation: isl.Map
    data: bool
    guards: tuple[Guard, ...]
    chunk: Chunk | None = None


def edges_of(program: Program) -> list[Edge]:
    """One edge for each conflict of a pair of calls; sinks with declared waits get none."""
    return [
        _edge_of(program, d)
        for d in dependences(program).deps
        if not is_header(d.source) and not d.later
        and (d.sink.call.waits is None or is_header(d.sink))
    ]


def _edge_of(program: Program, d: Dependence) -> Edge:
    """To the iterations of a loop, where a task that waits inside its body can start earlier. Push
    dispatches a task when all it waits for is, so there is nothing to be won."""
    operand = None if d.sink.call.pushed else operand_of(program, d)
    chunk = None
    if operand is not None:
        by_chunk = refined(program, d, operand)
        if worthwhile(program, d, by_chunk):
            d, chunk = by_chunk, operand.chunk
    return Edge(d.source, d.sink, d.relation, d.data, (Guard(d.tensor, Hazard(d.kind)),), chunk)


def push_notes(program: Program) -> Iterator[tuple[str, str]]:
    """Calls that could wait chunk by chunk but for their schedule, and what to say of them."""
    for d in dependences(program).deps:
        operand = operand_of(program, d) if d.sink.call.pushed else None
        if operand is not None and worthwhile(program, d, refined(program, d, operand)):
            yield d.sink.call.name, (
                f"waits for all chunks of {d.tensor} before its body: push dispatches a task when "
                "all that it waits for is dispatched")


def drop_implied(program: Program, edges: list[Edge], given: Sequence[Given] = ()) -> list[Edge]:
    """Leave out (parts of) edges that paths of others, and of those `given`, imply, and join the
    rest by pairs of calls.

    All may go at once: in an acyclic graph each is replaced by edges that span less. One whose path
    through what is kept is too long to find again is kept whole."""
    edges = _first_waits(program, edges)
    graph = _graph(program, edges, given)
    shrunk = {id(e): _shrunk(graph, e) for e in edges}
    kept = [
        replace(e, relation=shrunk[id(e)]) for e in edges if not shrunk[id(e)].is_empty()
    ]
    graph = _graph(program, kept, given)
    for e in edges:
        if shrunk[id(e)] is not e.relation and not _follows(graph, e):
            kept.append(e)
            graph.add(e.source.call.name, e.sink.call.name, e.relation)
    return [_plain(program, e) for e in joined(kept)]


def _plain(program: Program, e: Edge) -> Edge:
    """An edge of many pieces between near iterations of a loop becomes one between all tiles of
    the iterations that it spans. To tell these tiles apart takes isl longer than it saves."""
    if e.data or e.chunk or e.relation.n_basic_map() <= EXACT:
        return e
    if common_loops(e.source, e.sink) != 1:
        return e
    m, into, out = e.relation, isl.dim_type.in_, isl.dim_type.out
    loops = m.project_out(into, 1, m.dim(into) - 1).project_out(out, 1, m.dim(out) - 1)
    least, most = loops.deltas().dim_min_val(0), loops.deltas().dim_max_val(0)
    if not (least.is_int() and most.is_int()) or least.to_python() < 1 or most.to_python() > SPAN:
        return e
    var = e.source.loops[0].var
    inner = f"{least} <= b_{var} - a_{var} <= {most}"
    return replace(e, relation=iterations(program, e.source, e.sink, inner))


def _first_waits(program: Program, edges: list[Edge]) -> list[Edge]:
    """Leave out what a task waited for before: at its start, for another operand, or in an earlier
    iteration."""
    out = []
    for e in edges:
        if not e.chunk:
            out.append(e)
            continue
        again = later_too(program, e.relation, e.sink)
        left = _simpler(e.relation.subtract(again).coalesce(), e.relation)
        for w in edges:
            if w.source is e.source and w.sink.call.name == base_name(e.sink.call.name):
                beyond = left.subtract(lift_sink(program, w.relation, e.sink)).coalesce()
                left = _simpler(beyond, left)
        if not left.is_empty():
            out.append(replace(e, relation=left))
    return out


def _simpler(left: isl.Map, relation: isl.Map) -> isl.Map:
    """What is left of a relation, if that is no more complicated."""
    smaller = left.n_basic_map() <= relation.n_basic_map() and not left.is_equal(relation)
    return left if smaller else relation


def _shrunk(graph: OrderGraph, e: Edge) -> isl.Map:
    """What longer paths leave of an edge, if that is no more complicated than the edge."""
    doing(f"paths beside the edge from '{e.source.call.name}' to '{e.sink.call.name}'")
    cover = None
    try:
        with budget(DETOUR):
            for cover in graph.covers(e.source.call.name, e.sink.call.name, 2, PATH):
                if e.relation.is_subset(cover):
                    return e.relation.subtract(e.relation)
            left = e.relation if cover is None else e.relation.subtract(cover).coalesce()
    except OutOfBudget:
        return e.relation
    return _simpler(left, e.relation)


def _follows(graph: OrderGraph, e: Edge) -> bool:
    try:
        with budget(DETOUR):
            return graph.implied(e.source.call.name, e.sink.call.name, e.relation, 1, PATH)
    except OutOfBudget:
        return False


def _graph(program: Program, edges: list[Edge], given: Sequence[Given]) -> OrderGraph:
    graph = OrderGraph(program, [e.sink for e in edges if e.chunk])
    for e in edges:
        graph.add(e.source.call.name, e.sink.call.name, e.relation)
    for source, sink, relation in given:
        graph.add(source, sink, relation)
    return graph


def joined(edges: list[Edge]) -> list[Edge]:
    found: dict[tuple[str, str], Edge] = {}
    for e in edges:
        key = (e.source.call.name, e.sink.call.name)
        if key in found:
            known = found[key]
            found[key] = Edge(
                e.source, e.sink, known.relation.union(e.relation).coalesce(),
                known.data or e.data, tuple(dict.fromkeys((*known.guards, *e.guards))), e.chunk,
            )
        else:
            found[key] = e
    return list(found.values())
