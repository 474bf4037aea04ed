"""The run-time data that waits read: their writers must come before, and later writers after.

A wait reads data in its map or in the count of its event. Only the header and the earlier waits of
the list are done by then, so only they can order the wait after the writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from ..ir.program import PlacedCall, Program
from .access import Access, accesses, is_header
from .cells import program_order
from .deps import element_map
from .event_maps import Events, EventUse, wait_reads
from .order_graph import MAX_PATH, OrderGraph


@dataclass(frozen=True)
class UnorderedRead:
    """Pairs of tasks that no event orders: a writer of `tensor` and a task whose wait reads it
    (kind raw), or the reading task and a later writer (kind war)."""

    source: PlacedCall
    sink: PlacedCall
    kind: str
    tensor: str
    relation: isl.Map


def unordered_reads(program: Program, events: Events) -> Iterator[UnorderedRead]:
    """The reads of waits whose order cannot be shown."""
    by_node: dict[str, list[EventUse]] = {}
    for w in events.waits:
        by_node.setdefault(w.node, []).append(w)
    for name, waits in by_node.items():
        node = events.graph.nodes[name]
        for k, wait in enumerate(waits):
            if not wait.reads_data:
                continue
            before_it = (edge for w in waits[:k] for edge in events.edges(w))
            earlier = events.graph.with_edges_to(name, before_it)
            for tensor, reads in wait_reads(program, node, wait):
                for a in accesses(program)[tensor]:
                    if a.writes:
                        yield from _unordered_pairs(program, events.graph, earlier, node, a, reads)


def _unordered_pairs(
    program: Program,
    graph: OrderGraph,
    earlier: OrderGraph,
    node: PlacedCall,
    writer: Access,
    reads: isl.Map,
) -> Iterator[UnorderedRead]:
    tensor, source, name = writer.region.tensor, writer.node, node.call.name
    meet = element_map(program, writer).apply_range(reads.reverse())
    raw = meet.intersect(program_order(program, source, node))
    if not earlier.is_implied(source.call.name, name, raw, 1, MAX_PATH):
        yield UnorderedRead(source, node, "raw", tensor, raw)
    war = meet.reverse().intersect(program_order(program, node, source))
    if is_header(node):
        if not war.is_empty():
            yield UnorderedRead(node, source, "war", tensor, war)
    elif not graph.is_implied(name, source.call.name, war, 1, MAX_PATH):
        yield UnorderedRead(node, source, "war", tensor, war)
