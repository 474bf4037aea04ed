"""Chooses the cell map of an edge: it keeps, drops or divides each producer coordinate.

No consumer waits for a task that it does not need, unless run-time data makes the map coarser.
Every fibre is a box, so that the count has a closed form. Every producer precedes every waiter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import islpy as isl

from ..ir.expr import Const, Node, Var, add, floordiv, product
from ..ir.interval import at_least_zero
from ..ir.program import PlacedCall, Program, has_data_extent
from ..ir.walk import free_vars, loads_of, substitute
from .notify_counts import box_sizes
from .sets.nests import expr_of
from .sets.space import Scope, cell_names, sides_of, task_domain
from .sets.versions import before_text, tile_before_text

KEEP, DROP = 1, 0
MAX_DIVISOR = 64
MAX_FEW_WAITS = 4  # so many waits cost less than one more notify by every producer
MAX_EXACT_PIECES = 2  # of a relation for which exact waits are cheap


@dataclass(frozen=True)
class CellMap:
    """`steps[k]` of producer coordinate k: 0 drops it, 1 keeps it, m > 1 divides it by m.
    `producers` are the tasks that notify, `relation` maps them to cells."""

    steps: tuple[int, ...]
    producers: isl.Set
    relation: isl.Map

    @property
    def rank(self) -> int:
        return sum(s != DROP for s in self.steps)


def make_map(steps: tuple[int, ...], producers: isl.Set) -> CellMap:
    names = [f"x{k}" for k in range(len(steps))]
    out = [
        n if s == KEEP else f"floor({n}/{s})" for n, s in zip(names, steps, strict=True) if s
    ]
    m = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(out)}] }}")
    return CellMap(steps, producers, m.intersect_domain(producers).coalesce())


def is_exact(cells: CellMap, edge: isl.Map) -> bool:
    """True if no consumer of the edge would wait for a producer that it does not need."""
    return bool(realised_edge(cells, edge).is_subset(edge))


def realised_edge(cells: CellMap, edge: isl.Map) -> isl.Map:
    """producer -> consumer as the cells realise it: all producers of a cell precede its waiters."""
    together = cells.relation.apply_range(cells.relation.reverse())
    return together.apply_range(edge)


def program_order(program: Program, a: PlacedCall, b: PlacedCall) -> isl.Map:
    """Program order between two calls. Tiles of one call are ordered by coordinate, for
    accumulation."""
    scope, sides = Scope(program), sides_of(a, b)
    text = before_text(a, b, "a_", "b_")
    if a.call.name == b.call.name:
        equal = [f"a_{loop.var} = b_{loop.var}" for loop in a.loops]
        text = f"({text} or ({' and '.join([*equal, tile_before_text(a)])}))"
    scope.require(text)
    return scope.map(sides[0].names, sides[1].names)


def choose_cells(
    program: Program, source: PlacedCall, edge: isl.Map, order: isl.Map | None, certain: bool
) -> tuple[CellMap, isl.Map]:
    """The coarsest exact cell map, greedily from the last coordinate, and the edge it realises.

    Edges that run-time data decides have an `order`. A cell may then hold producers that a consumer
    does not need, if they precede it; in the end the edge is all-to-all. Unless it is `certain`
    that the producers exist, coordinates with run-time extents are dropped if the count then has a
    closed form, because a cell without producers has the count 0."""
    whole = order is not None or has_data_extent(source.call)
    producers = task_domain(program, source) if whole else edge.domain().coalesce()
    steps = [
        DROP if not certain and loads_of(a.extent) else KEEP for a in source.axes
    ]
    best = make_map(tuple(steps), producers)
    if not _has_count(source, best):
        steps = [KEEP] * len(steps)
        best = make_map(tuple(steps), producers)
    if DROP in steps:
        edge = realised_edge(best, edge)
    if order is not None and edge.n_basic_map() <= MAX_EXACT_PIECES:
        order = None
    for k in reversed(range(len(steps))):
        for step in _coarser_steps(edge, k) if steps[k] == KEEP else ():
            trial = make_map((*steps[:k], step, *steps[k + 1 :]), producers)
            exact = is_exact(trial, edge)
            loose = (
                order is not None
                and k >= len(source.loops)
                and bool(realised_edge(trial, edge).is_subset(order))
            )
            if (exact or loose) and _has_count(source, trial):
                edge = edge if exact else realised_edge(trial, edge)
                steps[k], best = step, trial
                break
    return best, edge


def has_run_time_axis(source: PlacedCall, cells: CellMap) -> bool:
    """True if run-time data decides which cells have producers."""
    return any(
        step != DROP and loads_of(a.extent)
        for a, step in zip(source.axes, cells.steps, strict=True)
    )


def has_few_waits(cells: CellMap, edge: isl.Map) -> bool:
    """True if every consumer of the edge would wait for few of these cells."""
    waits = edge.reverse().apply_range(cells.relation)
    widths = [_value_span(waits, k) for k in range(cells.rank)]
    return None not in widths and prod(w for w in widths if w is not None) <= MAX_FEW_WAITS


def _coarser_steps(edge: isl.Map, k: int) -> Iterator[int]:
    """Coarser steps of coordinate k: to drop it, then to divide it by the number of its values that
    one consumer needs. That number is expensive, so it is computed only if the first step fails."""
    yield DROP
    width = _value_span(edge.reverse(), k)
    if width is not None and 1 < width <= MAX_DIVISOR:
        yield width


def _value_span(per_consumer: isl.Map, k: int) -> int | None:
    """The number of values that coordinate k spans for one consumer; None without a bound."""
    dims = per_consumer.dim(isl.dim_type.out)
    line = per_consumer.project_out(isl.dim_type.out, k + 1, dims - k - 1)
    line = line.project_out(isl.dim_type.out, 0, k)
    top = line.range_product(line).range().unwrap().deltas().dim_max_val(0)
    return int(top.to_python()) + 1 if top.is_int() else None


def count_of(program: Program, source: PlacedCall, cells: CellMap) -> Node | None:
    """The number of producers of a cell, over c0, c1, ... None if a fibre is not a box."""
    if loads_of(*(a.extent for a in source.axes)):
        return _count_by_extents(source, cells)
    sizes = box_sizes(cells.relation.reverse())
    if sizes is None:
        return None
    names = cell_names(cells.rank)
    return product([expr_of(program, s, names) for s in sizes])


def _has_count(source: PlacedCall, cells: CellMap) -> bool:
    """True if `count_of` finds a count."""
    if loads_of(*(a.extent for a in source.axes)):
        return _count_by_extents(source, cells) is not None
    return box_sizes(cells.relation.reverse()) is not None


def _count_by_extents(source: PlacedCall, cells: CellMap) -> Node | None:
    """The count for run-time extents: the product of the dropped extents, if they depend on kept
    coordinates alone."""
    kept: dict[str, Node] = {}
    names = iter(cell_names(cells.rank))
    sizes: list[Node] = []
    for axis, step in zip(source.axes, cells.steps, strict=True):
        if step > 1 or free_vars(axis.extent) - set(kept):
            return None
        here = substitute(axis.extent, kept)
        if step == KEEP:
            kept[axis.var] = Var(next(names))
        else:
            sizes.append(here)
    return product(sizes)


def shape_of_cells(program: Program, source: PlacedCall, cells: CellMap) -> tuple[Node, ...]:
    """The extents of the cell space, over dims alone, with a cell for every producer."""
    out: list[Node] = []
    for k, (axis, step) in enumerate(zip(source.axes, cells.steps, strict=True)):
        if step == DROP:
            continue
        extent = axis.extent
        if free_vars(extent) or loads_of(extent):
            extent = _largest(program, source, k)
        extent = at_least_zero(extent)
        out.append(extent if step == KEEP else floordiv(add(extent, Const(step - 1)), step))
    return tuple(out)


def _largest(program: Program, source: PlacedCall, k: int) -> Node:
    """One more than the largest value of coordinate k over all tasks."""
    top = task_domain(program, source).dim_max(k)
    return add(expr_of(program, top, ()), Const(1))

