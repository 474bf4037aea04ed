"""The known order between tasks, and what follows from it by bounded composition.

An edge maps tasks of one call to tasks of another that start after the first have ended. Whether
events give an edge is decided in event_maps.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import copy

import islpy as isl

from ..ir.program import PlacedCall, Program, has_data_extent
from ..ir.walk import loads_of
from .access import HEADER, is_header, nodes
from .iteration_nodes import base_name, is_iteration, later_iterations, lift_sink, lift_source
from .sets.space import Scope, Side, sides_of, task_domain
from .sets.versions import common_loops

MAX_PATH = 12  # edges of a chain
MAX_PIECES, MAX_DIVISIONS = 12, 4  # of a relation that paths go through


class OrderGraph:
    """Maps between calls: source task -> sink task, where the source ends before the sink starts.

    What comes before or after a task comes before or after all its iteration nodes. What comes
    before an iteration comes before the later ones."""

    def __init__(self, program: Program, iteration_nodes: Iterable[PlacedCall] = ()) -> None:
        self.program = program
        self.iteration_nodes = {c.call.name: c for c in iteration_nodes}
        self.nodes = {n.call.name: n for n in nodes(program)} | self.iteration_nodes
        self.edges: dict[tuple[str, str], isl.Map] = {}
        self.successors: dict[str, set[str]] = defaultdict(set)
        self.predecessors: dict[str, set[str]] = defaultdict(set)
        self._certain_pairs: dict[tuple[str, str], isl.Map | None] = {}
        self._paths: dict[tuple[str, str, int], isl.Map | None] = {}
        self._covers: dict[tuple[str, str, int, int], isl.Map | None] = {}
        for name, node in self.nodes.items():
            if is_header(node):
                call = self.nodes[name.removesuffix(HEADER)]
                self.add(name, call.call.name, header_edge(program, call))

    def add(self, source: str, sink: str, relation: isl.Map) -> None:
        if sink in self.iteration_nodes:
            later = later_iterations(self.program, relation, self.iteration_nodes[sink])
            relation = relation.union(later).coalesce()
        self._add(source, sink, relation)
        before = [c for n, c in self.iteration_nodes.items() if base_name(n) == source != n]
        after = [c for n, c in self.iteration_nodes.items() if base_name(n) == sink != n]
        for a in before:
            self._add(a.call.name, sink, lift_source(self.program, relation, a))
        for b in after:
            lifted = lift_sink(self.program, relation, b)
            self._add(source, b.call.name, lifted)
            for a in before:
                self._add(a.call.name, b.call.name, lift_source(self.program, lifted, a))

    def _add(self, source: str, sink: str, relation: isl.Map) -> None:
        known = self.edges.get((source, sink))
        self.edges[source, sink] = relation if known is None else known.union(relation).coalesce()
        self.successors[source].add(sink)
        self.predecessors[sink].add(source)
        self._paths.clear()
        self._covers.clear()

    def with_edges_to(self, sink: str, edges: Iterable[tuple[str, isl.Map]]) -> OrderGraph:
        """The graph in which only `edges` (source, relation) and headers lead to `sink`."""
        other = copy(self)
        other.edges = {k: m for k, m in self.edges.items() if k[1] != sink or is_header(
            self.nodes[k[0]])}
        other.successors, other.predecessors = defaultdict(set), defaultdict(set)
        other._paths, other._covers = {}, {}
        for a, b in other.edges:
            other.successors[a].add(b)
            other.predecessors[b].add(a)
        for source, relation in edges:
            other.add(source, sink, relation)
        return other

    def direct(self, source: str, sink: str) -> isl.Map | None:
        return self.edges.get((source, sink))

    def two_steps(self, source: str, sink: str) -> isl.Map | None:
        """Order through one task in between, which always exists."""
        total = None
        for middle in sorted(self.successors[source]):
            if (middle, sink) in self.edges:
                found = self.join(source, middle, sink, self.edges[source, middle],
                                  self.edges[middle, sink])
                total = found if total is None else total.union(found)
        return None if total is None else total.coalesce()

    def join(
        self, source: str, middle: str, sink: str, first: isl.Map, second: isl.Map
    ) -> isl.Map:
        """The composition of two edges, if the task in between exists whenever either end does."""
        from_source = self.certain_pairs(source, middle)
        if from_source is None:
            return first.apply_range(second)
        from_sink = self.certain_pairs(sink, middle)
        assert from_sink is not None
        a = first.intersect(from_source).apply_range(second)
        b = first.apply_range(second.intersect(from_sink.reverse()))
        return a.union(b)

    def certain_pairs(self, given: str, task: str) -> isl.Map | None:
        """Pairs (given, task) such that the second exists if the first does. None: it always
        does."""
        key = (given, task)
        if key not in self._certain_pairs:
            self._certain_pairs[key] = certain_pairs(
                self.program, self.nodes[given], self.nodes[task]
            )
        return self._certain_pairs[key]

    def is_implied(
        self, source: str, sink: str, want: isl.Map, shortest: int, longest: int
    ) -> bool:
        """True if paths of shortest..longest edges order all of `want`."""
        return want.is_empty() or any(
            want.is_subset(cover) for cover in self.covers(source, sink, shortest, longest)
        )

    def covers(self, source: str, sink: str, shortest: int, longest: int) -> Iterator[isl.Map]:
        """The order by paths of shortest..longest edges. It grows with longer paths, and ends when
        it is no longer simple."""
        last = None
        for length in range(shortest, longest + 1):
            cover = self._union_of_paths(source, sink, shortest, length)
            if cover is not None and cover is not last:
                if not _is_simple(cover):
                    return
                yield cover
            last = cover

    def _union_of_paths(
        self, source: str, sink: str, shortest: int, longest: int
    ) -> isl.Map | None:
        """The order by paths of shortest..longest edges."""
        if longest < shortest:
            return None
        key = (source, sink, shortest, longest)
        if key not in self._covers:
            shorter = self._union_of_paths(source, sink, shortest, longest - 1)
            found = self._path(source, sink, longest)
            if shorter is not None and found is not None:
                found = shorter.union(found).coalesce()
            self._covers[key] = shorter if found is None else found
        return self._covers[key]

    def unordered_part(self, source: str, sink: str, want: isl.Map) -> isl.Map:
        """The part of `want` that no path orders. It may be too large if there are too many
        paths."""
        left = want
        for length in range(1, MAX_PATH + 1):
            found = self._path(source, sink, length)
            if found is not None:
                left = left.subtract(found).coalesce()
            if left.is_empty() or left.n_basic_map() > MAX_PIECES:
                break
        return left

    def _path(self, source: str, sink: str, length: int) -> isl.Map | None:
        """The order by paths of `length` edges; None if there are none, or too many. Each is
        cached, because paths to other sinks begin with it."""
        if length == 1:
            return self.edges.get((source, sink))
        key = (source, sink, length)
        if key not in self._paths:
            self._paths[key] = self._extend_paths(source, sink, length)
        return self._paths[key]

    def _extend_paths(self, source: str, sink: str, length: int) -> isl.Map | None:
        total = None
        for middle in sorted(self.predecessors[sink]):
            so_far = self._path(source, middle, length - 1)
            if so_far is None:
                continue
            found = self.join(source, middle, sink, so_far, self.edges[middle, sink])
            if not found.is_empty():
                total = found if total is None else total.union(found)
        if total is None or total.n_basic_map() > 4 * MAX_PIECES:
            return None
        total = total.coalesce()
        return total if _is_simple(total) else None

    def ancestors(self, sink: str) -> set[str]:
        """The calls from which paths lead to `sink`."""
        found: set[str] = set()
        todo = [sink]
        while todo:
            for a in self.predecessors[todo.pop()]:
                if a not in found:
                    found.add(a)
                    todo.append(a)
        return found


def _is_simple(m: isl.Map) -> bool:
    """True if unions and differences with the map are cheap."""
    pieces = m.get_basic_maps()
    return len(pieces) <= MAX_PIECES and all(
        p.dim(isl.dim_type.div) <= MAX_DIVISIONS for p in pieces
    )


def add_fences(graph: OrderGraph) -> set[str]:
    """Add the edges of fences, and return their calls. All tiles of a fence come before all its
    tiles of the next iteration. Because there is always a tile, by induction they come before those
    of all later iterations."""
    found = set()
    for name, node in graph.nodes.items():
        if (
            not node.loops
            or is_header(node)
            or is_iteration(node)
            or not _always_has_tiles(graph.program, node)
        ):
            continue
        following = iteration_order(
            graph.program, node, node, f"b_{node.loops[-1].var} = a_{node.loops[-1].var} + 1"
        )
        if graph.is_implied(name, name, following, 1, MAX_PATH):
            found.add(name)
    for name in found:
        node = graph.nodes[name]
        later = f"b_{node.loops[-1].var} > a_{node.loops[-1].var}"
        graph.add(name, name, iteration_order(graph.program, node, node, later))
    return found


def iteration_order(program: Program, a: PlacedCall, b: PlacedCall, inner: str) -> isl.Map:
    """All tiles of `a` -> all tiles of `b` in the same outer iterations. `inner` relates the
    innermost common loop."""
    depth = common_loops(a, b)
    scope, sides = Scope(program), sides_of(a, b)
    for side in sides:
        scope.domain(side)
    scope.require(*(f"a_{lp.var} = b_{lp.var}" for lp in a.loops[: depth - 1]), inner)
    scope.finish()
    return scope.map(sides[0].names, sides[1].names)


def _always_has_tiles(program: Program, node: PlacedCall) -> bool:
    """True if the grid has a tile in every iteration, for all run-time data."""
    if has_data_extent(node.call):
        return False
    scope, side = Scope(program), Side(node, "a_")
    scope.domain(side, len(node.loops))
    loops = scope.set(side.names[: len(node.loops)])
    tiles = task_domain(program, node)
    rest = tiles.dim(isl.dim_type.set) - len(node.loops)
    return bool(loops.is_subset(tiles.project_out(isl.dim_type.set, len(node.loops), rest)))


def header_edge(program: Program, call: PlacedCall) -> isl.Map:
    """A header comes before every task of its grid in the same iteration."""
    scope, side = Scope(program), Side(call, "b_")
    scope.domain(side)
    scope.finish()
    names = tuple(f"a_{lp.var}" for lp in call.loops)
    scope.require(*(f"a_{lp.var} = b_{lp.var}" for lp in call.loops))
    return scope.map(names, side.names)


def certain_pairs(program: Program, given: PlacedCall, task: PlacedCall) -> isl.Map | None:
    """Pairs (given, task) such that the second exists if the first does. None: it always does."""
    if not has_data_extent(task.call):
        return None
    sides = sides_of(given, task)
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
