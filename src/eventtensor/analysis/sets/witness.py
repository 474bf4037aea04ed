"""Witnesses: the smallest points of integer sets, by dims first, then tasks, then elements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import islpy as isl

from ...ir.program import PlacedCall
from ..access import HEADER, ITERATION_MARK
from ..check_report import Task, Witness
from .space import Scope

Pair = tuple[dict[str, int], tuple[int, ...]]


def smallest(points: isl.Set) -> Pair | None:
    """The lexicographically smallest point: its parameters and coordinates."""
    if points.is_empty():
        return None
    n = points.dim(isl.dim_type.param)
    names = [points.get_dim_name(isl.dim_type.param, k) for k in range(n)]
    flat = isl.Map.from_domain(points).move_dims(
        isl.dim_type.in_, 0, isl.dim_type.param, 0, n
    ).domain()
    point = flat.lexmin().sample_point()
    if point.is_void():
        return None
    values = [
        int(point.get_coordinate_val(isl.dim_type.set, k).to_python())
        for k in range(flat.dim(isl.dim_type.set))
    ]
    dims = {name.removeprefix("d_"): v for name, v in zip(names, values[:n], strict=True)}
    return dims, tuple(values[n:])


def smallest_of(scope: Scope, names: tuple[str, ...]) -> Pair | None:
    """The smallest point of an unfinished scope. A scope that is empty without relations between
    loads is empty with them, which is cheaper to find."""
    if scope.loads and scope.set(names).is_empty():
        return None
    scope.finish()
    return smallest(scope.set(names))


def task_of(placed: PlacedCall, coords: tuple[int, ...]) -> Task:
    """The task of a node. That of an iteration node lacks the iteration."""
    name = placed.call.name.removesuffix(HEADER)
    last = -1 if ITERATION_MARK in name else None
    pairs = zip(placed.vars[:last], coords[:last], strict=True)
    return Task(name.split(ITERATION_MARK)[0], tuple(pairs))


def smallest_pair(pairs: isl.Map) -> Pair | None:
    """The dims, and the coordinates of both tasks one after the other."""
    return smallest(pairs.wrap().flatten())


def pair_witness(
    a: PlacedCall, b: PlacedCall, pair: Pair, elements: tuple[isl.Map, isl.Map] | None, tensor: str
) -> Witness:
    """A pair of tasks, and the smallest element that both touch."""
    dims, values = pair
    first, second = values[: len(a.vars)], values[len(a.vars) :]
    index = None
    if elements is not None:
        both = image_of(elements[0], dims, first).intersect(image_of(elements[1], dims, second))
        hit = smallest(both)
        index = hit[1] if hit else None
    return Witness(
        tuple(dims.items()), (task_of(a, first), task_of(b, second)), tensor, index
    )


def pairs_by_size(pairs: isl.Map, sizes: int, limit: int) -> Iterator[tuple[dict[str, int], Pairs]]:
    """The first `sizes` choices of dims, smallest first, each with at most `limit` pairs."""
    rest = pairs
    for _ in range(sizes):
        found = smallest_pair(rest)
        if found is None:
            return
        here = _fix_dims(pairs, found[0])
        yield found[0], _points(here.wrap().flatten(), limit)
        rest = rest.subtract(here)


Pairs = list[tuple[int, ...]]


def _points(points: isl.Set, limit: int) -> Pairs:
    out: Pairs = []

    def take(point: isl.Point) -> None:
        if len(out) == limit:
            raise StopIteration
        out.append(tuple(
            int(point.get_coordinate_val(isl.dim_type.set, k).to_python())
            for k in range(points.dim(isl.dim_type.set))
        ))

    with suppress(isl.Error):  # isl stops at the limit
        points.foreach_point(take)
    return sorted(out)


def _fix_dims(m: isl.Map, dims: dict[str, int]) -> isl.Map:
    for k in range(m.dim(isl.dim_type.param)):
        name = m.get_dim_name(isl.dim_type.param, k).removeprefix("d_")
        m = m.fix_val(isl.dim_type.param, k, isl.Val(dims[name]))
    return m


def image_of(relation: isl.Map, dims: dict[str, int], coords: tuple[int, ...]) -> isl.Set:
    """The image of one point at given dims."""
    m = _fix_dims(relation, dims)
    for k, v in enumerate(coords):
        m = m.fix_val(isl.dim_type.in_, k, isl.Val(v))
    return m.range()
