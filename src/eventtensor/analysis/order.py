"""Known order between tasks, and what follows from it by bounded composition."""

from __future__ import annotations

from collections import defaultdict

import islpy as isl

from ..ir.program import PlacedCall, Program, has_data_extent
from ..ir.walk import loads_of
from .access import HEADER, is_header, nodes
from .space import Scope, Side


class OrderGraph:
    """Maps between calls: source task -> sink task means the source has finished before."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes = {n.call.name: n for n in nodes(program)}
        self.edges: dict[tuple[str, str], isl.Map] = {}
        self.after: dict[str, set[str]] = defaultdict(set)
        self._sure: dict[tuple[str, str], isl.Map | None] = {}
        for name, node in self.nodes.items():
            if is_header(node):
                call = self.nodes[name.removesuffix(HEADER)]
                self.add(name, call.call.name, header_edge(program, call))

    def add(self, source: str, sink: str, relation: isl.Map) -> None:
        known = self.edges.get((source, sink))
        self.edges[source, sink] = relation if known is None else known.union(relation).coalesce()
        self.after[source].add(sink)

    def direct(self, source: str, sink: str) -> isl.Map | None:
        return self.edges.get((source, sink))

    def two_steps(self, source: str, sink: str) -> isl.Map | None:
        """Order through one task in between, which surely exists."""
        total = None
        for middle in sorted(self.after[source]):
            if (middle, sink) in self.edges:
                found = self.join(source, middle, sink, self.edges[source, middle],
                                  self.edges[middle, sink])
                total = found if total is None else total.union(found)
        return None if total is None else total.coalesce()

    def join(
        self, source: str, middle: str, sink: str, first: isl.Map, second: isl.Map
    ) -> isl.Map:
        """first then second, where the task in between exists if either end does."""
        from_source = self._sure_pairs(source, middle)
        if from_source is None:
            return first.apply_range(second)
        from_sink = self._sure_pairs(sink, middle)
        assert from_sink is not None
        a = first.intersect(from_source).apply_range(second)
        b = first.apply_range(second.intersect(from_sink.reverse()))
        return a.union(b)

    def _sure_pairs(self, given: str, task: str) -> isl.Map | None:
        key = (given, task)
        if key not in self._sure:
            self._sure[key] = sure_pairs(self.program, self.nodes[given], self.nodes[task])
        return self._sure[key]

    def left_over(
        self, source: str, sink: str, want: isl.Map, shortest: int, longest: int
    ) -> isl.Map:
        """The part of `want` that no path of shortest..longest edges orders. Paths grow from the
        source, through calls from which the sink can still be reached."""
        useful = self._ancestors(sink) | {sink}
        frontier = {c: self.edges[source, c] for c in self.after[source] if c in useful}
        left = want
        for length in range(1, longest + 1):
            if length >= shortest and sink in frontier:
                left = left.subtract(frontier[sink]).coalesce()
            if left.is_empty() or length == longest:
                break
            frontier = self._grow(source, frontier, useful)
        return left

    def _grow(
        self, source: str, frontier: dict[str, isl.Map], useful: set[str]
    ) -> dict[str, isl.Map]:
        grown: dict[str, isl.Map] = {}
        for middle, so_far in frontier.items():
            for nxt in self.after[middle] & useful:
                found = self.join(source, middle, nxt, so_far, self.edges[middle, nxt])
                if not found.is_empty():
                    grown[nxt] = grown[nxt].union(found) if nxt in grown else found
        return {k: m.coalesce() for k, m in grown.items()}

    def _ancestors(self, sink: str) -> set[str]:
        into: dict[str, set[str]] = defaultdict(set)
        for a, b in self.edges:
            into[b].add(a)
        found: set[str] = set()
        todo = [sink]
        while todo:
            for a in into[todo.pop()]:
                if a not in found:
                    found.add(a)
                    todo.append(a)
        return found


def header_edge(program: Program, call: PlacedCall) -> isl.Map:
    """A header comes before every task of its grid in the same iteration."""
    scope, side = Scope(program), Side(call, "b_")
    scope.domain(side)
    scope.finish()
    names = tuple(f"a_{lp.var}" for lp in call.loops)
    scope.require(*(f"a_{lp.var} = b_{lp.var}" for lp in call.loops))
    return scope.map(names, side.names)


def sure_pairs(program: Program, given: PlacedCall, task: PlacedCall) -> isl.Map | None:
    """Pairs (given, task) such that if the first exists then so does the second; None: always."""
    if not has_data_extent(task.call):
        return None
    sides = Side(given, "a_"), Side(task, "b_")
    scope = Scope(program)
    scope.domain(sides[0])
    scope.domain(sides[1])
    scope.finish()
    sure = scope.map(sides[0].names, sides[1].names)
    for k, axis in enumerate(task.axes):
        if not loads_of(axis.extent):
            continue
        scope = Scope(program)
        scope.domain(sides[0])
        scope.domain(sides[1], k)
        scope.require(f"b_{axis.var} >= {scope.text(axis.extent, sides[1])}")
        scope.finish()
        sure = sure.subtract(scope.map(sides[0].names, sides[1].names))
    return sure.coalesce()
