"""Waits and notifies of a plan as integer maps, and the order that they give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from ..ir.plan import Nest, Notify, Wait, nest_exprs
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.walk import loads_of
from .access import HEADER, nodes
from .iteration_nodes import chunk_node, renamed
from .order_graph import OrderGraph
from .sets.isl_text import isl_text
from .sets.space import Scope, Side, cell_map


@dataclass(frozen=True)
class Use:
    """One wait or notify of a call on an event; `node` is the call, its header or an iteration of
    a loop in its body."""

    node: str
    event: EventTensor
    nests: tuple[Nest, ...]

    @property
    def data(self) -> bool:
        """True if run-time data is in the map."""
        return bool(loads_of(*(x for n in self.nests for x in nest_exprs(n))))

    @property
    def reads(self) -> bool:
        """True if run-time data is in the map or in the count of the event."""
        return self.data or (self.event.count is not None and bool(loads_of(self.event.count)))


def wait_reads(program: Program, node: PlacedCall, wait: Use) -> list[tuple[str, isl.Map]]:
    """Tensors whose run-time values a wait needs: task -> elements that it reads for it."""
    found: dict[tuple[str, str], tuple[str, isl.Map]] = {}
    for nest in wait.nests:
        scope, side = Scope(program), Side(node, "a_")
        scope.domain(side)
        known = len(scope.loads)
        scope.cell(nest, wait.event, side)
        for load in scope.loads[known:]:
            here = scope.copy()
            elements = tuple(f"e{k}" for k in range(len(load.index)))
            here.require(*(
                f"{e} = {isl_text(i, here)}" for e, i in zip(elements, load.index, strict=True)))
            m = here.map(side.names, elements)
            found[load.tensor, str(m)] = (load.tensor, m)
    return list(found.values())


@dataclass(frozen=True)
class Events:
    """All uses of the events of a plan, and the order they give where no run-time data is read."""

    waits: tuple[Use, ...]
    notifies: tuple[Use, ...]
    graph: OrderGraph
    maps: dict[int, isl.Map]

    def map(self, use: Use) -> isl.Map:
        return self.maps[id(use)]

    def edges(self, wait: Use) -> Iterator[tuple[str, isl.Map]]:
        """Calls that a wait orders before it, where no run-time data is in the maps."""
        for n in self.notifies:
            if n.event.name == wait.event.name and not (wait.data or n.data):
                yield n.node, self.map(n).apply_range(self.map(wait).reverse())

    def exist_given(self, wait: Use, notify: Use) -> bool:
        """True if a waiter's existence implies that of all notifiers of the cells it waits for."""
        sure = self.graph.sure(wait.node, notify.node)
        pairs = self.map(wait).apply_range(self.map(notify).reverse())
        return sure is None or bool(pairs.is_subset(sure))


def collect(
    program: Program, events: Iterable[EventTensor], headers: Mapping[str, Iterable[Wait]],
    waits: Mapping[str, Iterable[Wait]], notifies: Mapping[str, Iterable[Notify]],
) -> Events:
    event = {e.name: e for e in events}
    chunks: dict[str, PlacedCall] = {}
    by_wait = [_use(program, c, event[w.event], w, chunks) for c, ws in waits.items() for w in ws]
    by_wait += [Use(c + HEADER, event[w.event], w.cells) for c, ws in headers.items() for w in ws]
    by_notify = [Use(c, event[n.event], n.cells) for c, ns in notifies.items() for n in ns]
    graph = OrderGraph(program, chunks.values())
    maps = {
        id(u): cell_map(program, graph.nodes[u.node], u.event, u.nests)
        for u in (*by_wait, *by_notify)
    }
    found = Events(tuple(by_wait), tuple(by_notify), graph, maps)
    for w in by_wait:
        for source, relation in found.edges(w):
            graph.add(source, w.node, relation)
    return found


def _use(
    program: Program, call: str, event: EventTensor, wait: Wait, chunks: dict[str, PlacedCall]
) -> Use:
    """A wait that stands in a loop is one of the loop's iterations, which go into `chunks`."""
    if wait.chunk is None:
        return Use(call, event, wait.cells)
    placed = next(n for n in nodes(program) if n.call.name == call)
    node = chunk_node(placed, wait.chunk)
    chunks[node.call.name] = node
    return Use(node.call.name, event, renamed(wait.cells, f"%{wait.chunk.var}", node.vars[-1]))
