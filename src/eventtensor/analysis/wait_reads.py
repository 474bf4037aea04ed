"""Run-time data that waits read: it must be there when the wait is evaluated, and stay until then.

A wait may read data in its map or in the count of its event. Only the header and the waits before
it in the list are done at that moment, so only they can order it after the writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from ..ir.program import PlacedCall, Program
from .access import Access, accesses, is_header
from .cells import before
from .deps import element_map
from .event_maps import Events, Use, wait_reads
from .order_graph import PATH, OrderGraph


@dataclass(frozen=True)
class Unguarded:
    """Pairs of tasks of which the first must come before the second: a writer of `tensor` and a
    task whose wait reads it (kind raw), or the reading task and a later writer (kind war)."""

    source: PlacedCall
    sink: PlacedCall
    kind: str
    tensor: str
    relation: isl.Map


def unguarded(program: Program, events: Events) -> Iterator[Unguarded]:
    """Run-time data of waits that nothing orders, as far as can be shown."""
    by_node: dict[str, list[Use]] = {}
    for w in events.waits:
        by_node.setdefault(w.node, []).append(w)
    for name, waits in by_node.items():
        node = events.graph.nodes[name]
        for k, wait in enumerate(waits):
            if not wait.reads:
                continue
            before_it = (edge for w in waits[:k] for edge in events.edges(w))
            earlier = events.graph.limited(name, before_it)
            for tensor, reads in wait_reads(program, node, wait):
                for a in accesses(program)[tensor]:
                    if a.writes:
                        yield from _ask(program, events.graph, earlier, node, a, reads)


def _ask(
    program: Program, graph: OrderGraph, earlier: OrderGraph, node: PlacedCall, writer: Access,
    reads: isl.Map,
) -> Iterator[Unguarded]:
    tensor, source, name = writer.region.tensor, writer.node, node.call.name
    meet = element_map(program, writer).apply_range(reads.reverse())
    raw = meet.intersect(before(program, source, node))
    if not earlier.implied(source.call.name, name, raw, 1, PATH):
        yield Unguarded(source, node, "raw", tensor, raw)
    war = meet.reverse().intersect(before(program, node, source))
    if is_header(node):
        if not war.is_empty():
            yield Unguarded(node, source, "war", tensor, war)
    elif not graph.implied(name, source.call.name, war, 1, PATH):
        yield Unguarded(node, source, "war", tensor, war)
