"""Derives event tensors from regions: edges between calls, their cells, and the maps.

Pre: a built program. Post: a call without declared waits has the waits that it needs. It needs all
producers of the cells that it waits for, except where run-time data makes an edge coarser, which a
note says.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import islpy as isl

from ..errors import NonAffine, Unproved
from ..ir.expr import Const, Var, equal, mul
from ..ir.plan import (
    Guard,
    Hazard,
    Nest,
    NestAxis,
    Notify,
    Release,
    Wait,
    nest_exprs,
    region_nest,
)
from ..ir.program import Call, EventTensor, PlacedCall, Program
from ..ir.walk import loads_of
from ..progress import doing
from .access import HEADER, is_header
from .cells import (
    CellMap,
    choose_cells,
    count_of,
    has_few_waits,
    has_run_time_axis,
    is_exact,
    program_order,
    shape_of_cells,
)
from .deps import Dependence, dependences
from .edges import Edge, KnownOrder, drop_implied, edges_of, join_edges, push_notes
from .event_maps import Events, collect_events
from .iteration_nodes import base_name, rename_var, task_relation
from .notify_counts import existence, notify_count
from .order_graph import MAX_PATH, OrderGraph, add_fences, certain_pairs, iteration_order
from .sets.budget import DERIVATION, OutOfBudget, budget
from .sets.isl_text import NotAffine
from .sets.nests import nests_of
from .sets.space import cell_map, cell_names, cell_space, task_domain
from .sets.versions import common_loops
from .wait_reads import unordered_reads


@dataclass(frozen=True)
class Derived:
    """The events for a plan. `notes` say where run-time data makes an edge coarser. `hints` are the
    edges behind the events: the proof uses those that it finds true."""

    events: tuple[EventTensor, ...]
    headers: dict[str, tuple[Wait, ...]]
    waits: dict[str, tuple[Wait, ...]]
    notifies: dict[str, tuple[Notify, ...]]
    releases: tuple[Release, ...]
    notes: dict[str, tuple[str, ...]]
    hints: tuple[tuple[str, str, isl.Map], ...] = ()

    def uses(self, program: Program) -> Events:
        """The waits and notifies as maps, and the order that they give."""
        return collect_events(program, self.events, self.headers, self.waits, self.notifies)


@dataclass
class _Builder:
    program: Program
    events: list[EventTensor] = field(default_factory=list)
    cell_maps: dict[str, list[tuple[str, CellMap]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    waits: dict[str, list[Wait]] = field(default_factory=lambda: defaultdict(list))
    notifies: dict[str, list[Notify]] = field(default_factory=lambda: defaultdict(list))
    releases: list[Release] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    edges: list[Edge] = field(default_factory=list)


def derive(program: Program) -> Derived:
    try:
        with budget(DERIVATION):
            return _derive(program)
    except OutOfBudget:
        raise Unproved(
            f"deriving the events of {program.name} takes too many steps",
            hint="simplify the regions, or declare the events",
        ) from None
    except NotAffine as e:
        raise NonAffine(f"{program.name} uses the product '{e}' in an extent or index") from None


def _derive(program: Program) -> Derived:
    build = _Builder(program)
    _add_declared(build)
    for edge in drop_implied(program, edges_of(program), _declared_order(build)):
        _add_edge(build, edge)
    _order_iterations(build)
    _guard_counts(build)
    for call, note in dict.fromkeys(push_notes(program)):
        build.notes[call].append(note)
    names = [p.call.name for p in program.calls]
    return Derived(
        tuple(build.events),
        {n: _sorted_waits(build, n + HEADER) for n in names},
        {n: _sorted_waits(build, n) for n in names},
        {n: tuple(build.notifies[n]) for n in names},
        tuple(build.releases),
        {n: tuple(build.notes[n]) for n in names},
        tuple((e.source.call.name, e.sink.call.name, e.relation) for e in build.edges),
    )


# ---- iterations that run-time data ties together ---------------------------------------------


def _order_iterations(build: _Builder) -> None:
    """Order iterations that conflict by run-time data. The last fence before the sink waits for the
    source of the previous iteration. Without a fence, or in nested loops, the sink waits for all
    earlier iterations."""
    program = build.program
    later = [
        d for d in dependences(program).deps if d.is_later_iteration and not is_header(d.source)
    ]
    if not later:
        return
    graph = collect_events(program, build.events, {}, build.waits, build.notifies).graph
    fences = add_fences(graph)
    for d in later:
        source, sink = d.source.call.name, d.sink.call.name
        if graph.is_implied(source, sink, d.relation, 1, MAX_PATH):
            continue
        fence = _last_fence(graph, fences, d.sink)
        if fence is not None and common_loops(d.source, fence) == 1:
            loop = fence.loops[0].var
            step = f"b_{loop} = a_{loop} + {_distance(d, 1)}"
            edge = Edge(
                d.source,
                fence,
                iteration_order(program, d.source, fence, step),
                True,
                (Guard(d.tensor, Hazard(d.kind)),),
            )
        elif d.sink.call.waits is None:
            edge = Edge(d.source, d.sink, d.relation, True, (Guard(d.tensor, Hazard(d.kind)),))
        else:
            continue
        _add_edge(build, edge)
        graph.add(source, edge.sink.call.name, edge.relation)
        build.notes[edge.sink.call.name].append(
            f"waits on earlier iterations of {source}: run-time data decides "
            f"{', '.join(map(str, edge.guards))} across the loop"
        )


def _guard_counts(build: _Builder) -> None:
    """Order the run-time data in counts of derived events (the extents of producers). Plain waits,
    which come first, order the waiter after its writers. Later writers come after it."""
    program = build.program
    waits = {n: _sorted_waits(build, n) for n in list(build.waits)}
    if not any(_wait_reads_data(build, w) for ws in waits.values() for w in ws):
        return
    events = collect_events(program, build.events, {}, waits, build.notifies)
    missing = [
        Edge(u.source, u.sink, u.relation, False, (Guard(u.tensor, Hazard(u.kind)),))
        for u in unordered_reads(program, events)
        if not is_header(u.source) and (u.sink.call.waits is None or is_header(u.sink))
    ]
    for edge in join_edges(missing):
        _add_edge(build, edge)


def _last_fence(graph: OrderGraph, fences: set[str], sink: PlacedCall) -> PlacedCall | None:
    """The last fence of the same loop that all tiles of the sink are ordered after."""
    loop = sink.loops[-1].var
    for node in reversed(list(graph.nodes.values())):
        name = node.call.name
        if name not in fences or node.loops != sink.loops or node.call.waits is not None:
            continue
        if node.position > sink.position:
            continue
        same = iteration_order(graph.program, node, sink, f"a_{loop} = b_{loop}")
        if name == sink.call.name or graph.is_implied(name, sink.call.name, same, 1, MAX_PATH):
            return node
    return None


def _distance(d: Dependence, depth: int) -> int:
    """The smallest number of iterations between conflicting tasks."""
    into, out = isl.dim_type.in_, isl.dim_type.out
    m = d.relation
    m = m.project_out(into, depth, m.dim(into) - depth).project_out(into, 0, depth - 1)
    m = m.project_out(out, depth, m.dim(out) - depth).project_out(out, 0, depth - 1)
    nearest = m.deltas().intersect(isl.Set("{ [d] : d >= 1 }")).dim_min_val(0)
    return int(nearest.to_python()) if nearest.is_int() else 1


# ---- cells and maps ------------------------------------------------------------------------


def _add_edge(build: _Builder, edge: Edge) -> None:
    program, source, sink = build.program, edge.source, edge.sink
    build.edges.append(edge)
    doing(f"the edge from '{source.call.name}' to '{sink.call.name}'")
    name, cells, relation = _event_for(build, edge)
    waits = relation.reverse().apply_range(cells.relation)
    domain = task_domain(program, sink)
    nests = nests_of(program, waits, domain, sink.vars)
    if edge.loop:
        nests = rename_var(nests, sink.vars[-1], f"%{edge.loop.var}")
        waits = task_relation(waits.reverse()).reverse()
    call = base_name(sink.call.name)
    build.waits[call].append(Wait(name, nests, edge.guards, edge.loop))
    if not is_header(sink):
        event = next(e for e in build.events if e.name == name)
        tasks = _inverse_map(program, event, waits)
        build.releases.append(Release(name, call, tasks))
    if edge.is_data_dependent and not relation.is_equal(edge.relation):
        build.notes[sink.call.name].append(
            f"waits on {source.call.name} more widely than each tile needs: "
            f"run-time data decides {', '.join(map(str, edge.guards))}"
        )


def _inverse_map(program: Program, event: EventTensor, waits: isl.Map) -> tuple[Nest, ...]:
    """cell -> waiting tasks, for every cell of the event. Other calls may wait for it too."""
    names = cell_names(len(event.shape))
    return nests_of(program, waits.reverse(), cell_space(program, event), names)


def _event_for(build: _Builder, edge: Edge) -> tuple[str, CellMap, isl.Map]:
    """An event tensor of the same producer that is exact for the edge, or a new one. A header may
    also use an equal declared event, because its wait always counts cells."""
    program, source = build.program, edge.source
    sure = certain_pairs(program, edge.sink, source)
    certain = sure is None or bool(edge.relation.reverse().is_subset(sure))
    for name, known in build.cell_maps[source.call.name]:
        if (
            edge.relation.domain().is_subset(known.producers)
            and is_exact(known, edge.relation)
            and has_few_waits(known, edge.relation)
            and (certain or not has_run_time_axis(source, known))
        ):
            return name, known, edge.relation
    order = program_order(program, source, edge.sink) if edge.is_data_dependent else None
    cells, relation = choose_cells(program, source, edge.relation, order, certain)
    for name, known in build.cell_maps[source.call.name]:
        if known.steps == cells.steps and known.producers.is_equal(cells.producers):
            return name, known, relation
    count = count_of(program, source, cells)
    assert count is not None, f"no closed count for {source.call.name}"
    if not certain and has_run_time_axis(source, cells):
        kept = [v for v, step in zip(source.vars, cells.steps, strict=True) if step]
        count = mul(count, existence(source, dict(zip(kept, cell_names(cells.rank), strict=True))))
    shape = shape_of_cells(program, source, cells)
    nests = nests_of(program, cells.relation, task_domain(program, source), source.vars)
    if is_header(edge.sink):
        for told in build.notifies[source.call.name]:
            event = next(e for e in build.events if e.name == told.event)
            if told.cells == nests and (event.shape, event.count) == (shape, count):
                return told.event, cells, relation
    name = _event_name(build, source)
    build.events.append(EventTensor(name, shape, count, derived=True))
    build.cell_maps[source.call.name].append((name, cells))
    build.notifies[source.call.name].append(Notify(name, nests))
    return name, cells, relation


def _event_name(build: _Builder, source: PlacedCall) -> str:
    taken = {e.name for e in build.events} | {t.name for t in build.program.tensors}
    base = f"{source.call.name}_done"
    name, k = base, 2
    while name in taken:
        name, k = f"{base}_{k}", k + 1
    return name


def _sorted_waits(build: _Builder, call: str) -> tuple[Wait, ...]:
    """Waits that read run-time data come after the plain ones, which guard that data. Waits inside
    the body come last."""
    waits = build.waits[call]
    if not call.endswith(HEADER) and build.program.call(call).waits is not None:
        return tuple(waits)
    return tuple(sorted(waits, key=lambda w: (w.loop is not None, _wait_reads_data(build, w))))


def _wait_reads_data(build: _Builder, wait: Wait) -> bool:
    count = next(e.count for e in build.events if e.name == wait.event)
    exprs = [x for n in wait.cells for x in nest_exprs(n)]
    return bool(loads_of(*exprs, *(() if count is None else (count,))))


# ---- declared events -----------------------------------------------------------------------


def _add_declared(build: _Builder) -> None:
    """Add the declared event tensors, with their counts, and their waits and notifies."""
    program = build.program
    for e in program.events:
        count = e.count if e.count is not None else notify_count(program, e)
        build.events.append(replace(e, count=count))
    for p in program.calls:
        for region in p.call.waits or ():
            nest = region_nest(region, program.event(region.tensor))
            wait = Wait(
                region.tensor,
                (nest,),
                _declared_hazards(program, region.tensor, p.call),
                is_declared=True,
            )
            build.waits[p.call.name].append(wait)
            build.releases.append(_release(program, p, region.tensor, nest))
        for region in p.call.notifies or ():
            nest = region_nest(region, program.event(region.tensor))
            build.notifies[p.call.name].append(Notify(region.tensor, (nest,)))


def _declared_hazards(program: Program, event: str, sink: Call) -> tuple[Guard, ...]:
    """The hazards between a call and the calls that notify an event, on the tensors of both."""
    sources = [p.call for p in program.calls
               if any(r.tensor == event for r in p.call.notifies or ())]
    read = {r.tensor for s in sources for r in (*s.reads, *s.accumulates)}
    written = {r.tensor for s in sources for r in (*s.writes, *s.accumulates)}
    found = [(r.tensor, Hazard.raw, written) for r in (*sink.reads, *sink.accumulates)]
    for r in (*sink.accumulates, *sink.writes):
        found += [(r.tensor, Hazard.war, read), (r.tensor, Hazard.waw, written)]
    return tuple(dict.fromkeys(Guard(t, hazard) for t, hazard, there in found if t in there))


def _declared_order(build: _Builder) -> list[KnownOrder]:
    """The order of the declared events, as the proof sees it."""
    if not any(build.waits.values()):
        return []
    uses = collect_events(build.program, build.events, {}, build.waits, build.notifies)
    return [(source, w.node, relation) for w in uses.waits for source, relation in uses.edges(w)]


def _release(program: Program, placed: PlacedCall, event: str, nest: Nest) -> Release:
    """The inverse of a declared wait. If its map reads run-time data, it searches all tasks."""
    if not loads_of(*nest_exprs(nest), *(a.extent for a in placed.axes)):
        e = program.event(event)
        tasks = _inverse_map(program, e, cell_map(program, placed, e, (nest,)))
        return Release(event, placed.call.name, tasks)
    axes = [NestAxis(a.var, Const(0), a.extent) for a in placed.axes]
    guards = [equal(at, Var(f"c{k}")) for k, at in enumerate(nest.index)]
    search = Nest((*axes, *nest.axes), (*nest.guards, *guards), tuple(map(Var, placed.vars)))
    return Release(event, placed.call.name, (search,))

