"""Order between calls follows from the edges that a graph has now: what was found of paths before
an edge came, or in another graph, is not believed."""

from __future__ import annotations

import pytest

import eventtensor as et
from eventtensor.analysis.order_graph import MAX_PATH, OrderGraph
from eventtensor.analysis.sets.space import Scope, sides_of

CALLS = ("one", "two", "three", "four")


@et.task
def copy(x, o):
    o[:] = x


@pytest.fixture
def graph() -> OrderGraph:
    """Four calls over n tiles, and no edges."""
    n = et.dim("n", max=64)
    p = et.Program("order")
    x = p.input("x", (n,), et.f32)
    for name in CALLS:
        y = p.output(f"y_{name}", (n,), et.f32)
        p.call(copy, name=name, grid=(n,), reads=lambda i: x[i], writes=lambda i, y=y: y[i])
    return OrderGraph(p.build())


def tiles(graph: OrderGraph, source: str, sink: str, condition: str):
    scope, sides = Scope(graph.program), sides_of(graph.nodes[source], graph.nodes[sink])
    for side in sides:
        scope.domain(side)
    scope.require(condition.format(*(side.names[0] for side in sides)))
    return scope.map(sides[0].names, sides[1].names)


def link(graph: OrderGraph, source: str, sink: str, condition: str = "{0} = {1}") -> None:
    graph.add(source, sink, tiles(graph, source, sink, condition))


def ordered(graph: OrderGraph, condition: str = "{0} = {1}", longest: int = MAX_PATH) -> bool:
    want = tiles(graph, "one", "four", condition)
    by_parts = graph.unordered_part("one", "four", want).is_empty()
    found = graph.is_implied("one", "four", want, 1, longest)
    assert longest < MAX_PATH or found == by_parts
    return found


def test_a_path_is_found_once_its_last_edge_is_there(graph):
    link(graph, "one", "two")
    link(graph, "three", "four")
    assert not ordered(graph)
    link(graph, "two", "three")
    assert ordered(graph)
    assert not ordered(graph, longest=2)


def test_an_edge_that_grows_orders_more(graph):
    link(graph, "one", "two")
    link(graph, "two", "four")
    assert not ordered(graph, "{0} <= {1}")
    link(graph, "two", "four", "{0} < {1}")
    assert ordered(graph, "{0} <= {1}")
    assert not ordered(graph, "{0} >= {1}")


def test_paths_of_different_lengths_order_together(graph):
    link(graph, "one", "four", "{0} < {1}")
    link(graph, "one", "two")
    link(graph, "two", "three")
    link(graph, "three", "four")
    assert ordered(graph, "{0} <= {1}")
    assert not ordered(graph, "{0} <= {1}", longest=2)


def test_a_limited_graph_has_its_own_paths(graph):
    link(graph, "one", "two")
    link(graph, "two", "four")
    assert ordered(graph)
    other = graph.with_edges_to("four", [])
    assert not ordered(other)
    assert ordered(graph)
