"""Smallest points of integer sets, as witnesses: dims first, then tasks, then elements."""

from __future__ import annotations

import islpy as isl

from ...ir.program import PlacedCall, Program
from ..access import HEADER
from ..report import Task, Witness


def smallest(points: isl.Set) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """Parameters and coordinates of the lexicographically smallest point, parameters first."""
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


def task_of(placed: PlacedCall, coords: tuple[int, ...]) -> Task:
    name = placed.call.name.removesuffix(HEADER)
    return Task(name, tuple(zip(placed.vars, coords, strict=True)))


def pair_witness(
    program: Program, a: PlacedCall, b: PlacedCall, pairs: isl.Map,
    elements: tuple[isl.Map, isl.Map] | None, tensor: str,
) -> Witness | None:
    """The smallest pair of tasks, and an element that both touch."""
    found = smallest(pairs.wrap().flatten())
    if found is None:
        return None
    dims, values = found
    first, second = values[: len(a.vars)], values[len(a.vars) :]
    index = None
    if elements is not None:
        both = at(elements[0], dims, first).intersect(at(elements[1], dims, second))
        hit = smallest(both)
        index = hit[1] if hit else None
    return Witness(
        tuple(dims.items()), (task_of(a, first), task_of(b, second)), tensor, index
    )


def at(relation: isl.Map, dims: dict[str, int], coords: tuple[int, ...]) -> isl.Set:
    """The image of one point."""
    m = relation
    for k in range(m.dim(isl.dim_type.param)):
        name = m.get_dim_name(isl.dim_type.param, k).removeprefix("d_")
        m = m.fix_val(isl.dim_type.param, k, isl.Val(dims[name]))
    for k, v in enumerate(coords):
        m = m.fix_val(isl.dim_type.in_, k, isl.Val(v))
    return m.range()
