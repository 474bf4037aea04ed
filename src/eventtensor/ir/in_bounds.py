"""Which slices surely lie inside their tensor: their tiles keep the nominal extent, a number
or a size of the program, where others are clipped. Decided by the constant extents of a call's grid
and the bounds of dims alone."""

from __future__ import annotations

from dataclasses import replace

from .expr import Const, Node, add, mul
from .interval import KnownBounds, coordinate_bounds, numeric_bounds, within
from .program import GridAxis
from .tensor import Axis, Region, Slice, Tensor
from .walk import free_vars, loads_of


def settled(region: Region, tensor: Tensor, grid: tuple[GridAxis, ...]) -> Region:
    """The region, with `inside` set on such slices."""
    counted = (axis for axis in grid if isinstance(axis.extent, Const))
    known = within(coordinate_bounds(counted))
    axes = tuple(
        a if region.fills(k) else _settled(a, s, known)
        for k, (a, s) in enumerate(zip(region.axes, tensor.shape, strict=True))
    )
    return replace(region, axes=axes)


def _settled(axis: Axis, size: Node, known: KnownBounds) -> Axis:
    if not isinstance(axis, Slice) or not _of_sizes(axis.nominal):
        return axis
    left, _ = numeric_bounds(add(size, mul(Const(-1), axis.stop)), known)
    return replace(axis, inside=left is not None and left >= 0)


def _of_sizes(e: Node) -> bool:
    """A number or an expression over dims that is never negative."""
    low, _ = numeric_bounds(e)
    return not free_vars(e) and not loads_of(e) and low is not None and low >= 0
