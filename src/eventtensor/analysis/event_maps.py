"""The waits and notifies of a plan as integer maps, and the order that they give.

A map goes from the tasks of a call to the cells that they visit. Order comes from maps without
run-time data alone; coverage.py treats the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from ..ir.plan import Nest, Notify, Wait, nest_exprs
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.walk import loads_of
from .access import HEADER, nodes
from .iteration_nodes import iteration_node, rename_var
from .order_graph import OrderGraph
from .sets.isl_text import isl_text
from .sets.space import Scope, Side, cell_map


@dataclass(frozen=True)
class EventUse:
    """One wait or notify on an event. `node` is the call, its header or an iteration node."""

    node: str
    event: EventTensor
    nests: tuple[Nest, ...]

    @property
    def is_data_dependent(self) -> bool:
        """True if the map reads run-time data."""
        return bool(loads_of(*(x for n in self.nests for x in nest_exprs(n))))

    @property
    def reads_data(self) -> bool:
        """True if the map or the count of the event reads run-time data."""
        return self.is_data_dependent or (
            self.event.count is not None and bool(loads_of(self.event.count))
        )


def wait_reads(program: Program, node: PlacedCall, wait: EventUse) -> list[tuple[str, isl.Map]]:
    """The run-time data that a wait reads: tensors, and task -> elements."""
    found: dict[tuple[str, str], tuple[str, isl.Map]] = {}
    for nest in wait.nests:
        scope, side = Scope(program), Side(node, "a_")
        scope.domain(side)
        known = len(scope.loads)
        scope.cell(nest, wait.event, side)
        for load in scope.loads[known:]:
            here = scope.copy()
            elements = tuple(f"e{k}" for k in range(len(load.index)))
            here.require(
                *(f"{e} = {isl_text(i, here)}" for e, i in zip(elements, load.index, strict=True))
            )
            m = here.map(side.names, elements)
            found[load.tensor, str(m)] = (load.tensor, m)
    return list(found.values())


@dataclass(frozen=True)
class Events:
    """All waits and notifies of a plan, and the order of those without run-time data."""

    waits: tuple[EventUse, ...]
    notifies: tuple[EventUse, ...]
    graph: OrderGraph
    maps: dict[int, isl.Map]

    def map(self, use: EventUse) -> isl.Map:
        return self.maps[id(use)]

    def edges(self, wait: EventUse) -> Iterator[tuple[str, isl.Map]]:
        """The calls that a wait puts before its own, and the order, without run-time data."""
        for n in self.notifies:
            if n.event.name == wait.event.name and not (
                wait.is_data_dependent or n.is_data_dependent
            ):
                yield n.node, self.map(n).apply_range(self.map(wait).reverse())

    def imply_notifiers(self, wait: EventUse, notify: EventUse) -> bool:
        """True if a waiter exists only if all notifiers of its cells do."""
        sure = self.graph.certain_pairs(wait.node, notify.node)
        pairs = self.map(wait).apply_range(self.map(notify).reverse())
        return sure is None or bool(pairs.is_subset(sure))


def collect_events(
    program: Program,
    events: Iterable[EventTensor],
    headers: Mapping[str, Iterable[Wait]],
    waits: Mapping[str, Iterable[Wait]],
    notifies: Mapping[str, Iterable[Notify]],
) -> Events:
    event = {e.name: e for e in events}
    iteration_nodes: dict[str, PlacedCall] = {}
    by_wait = [
        _wait_use(program, c, event[w.event], w, iteration_nodes)
        for c, ws in waits.items()
        for w in ws
    ]
    by_wait += [
        EventUse(c + HEADER, event[w.event], w.cells) for c, ws in headers.items() for w in ws
    ]
    by_notify = [EventUse(c, event[n.event], n.cells) for c, ns in notifies.items() for n in ns]
    graph = OrderGraph(program, iteration_nodes.values())
    maps = {
        id(u): cell_map(program, graph.nodes[u.node], u.event, u.nests)
        for u in (*by_wait, *by_notify)
    }
    found = Events(tuple(by_wait), tuple(by_notify), graph, maps)
    for w in by_wait:
        for source, relation in found.edges(w):
            graph.add(source, w.node, relation)
    return found


def _wait_use(
    program: Program,
    call: str,
    event: EventTensor,
    wait: Wait,
    iteration_nodes: dict[str, PlacedCall],
) -> EventUse:
    """A wait in a loop is a use by the iterations of the loop, which go into `iteration_nodes`."""
    if wait.loop is None:
        return EventUse(call, event, wait.cells)
    placed = next(n for n in nodes(program) if n.call.name == call)
    node = iteration_node(placed, wait.loop)
    iteration_nodes[node.call.name] = node
    return EventUse(
        node.call.name, event, rename_var(wait.cells, f"%{wait.loop.var}", node.vars[-1])
    )
