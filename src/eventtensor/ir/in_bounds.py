"""Marks slices that end in their tensor for every coordinate and all dims.

Their tiles keep the nominal extent, while others are clipped. The constant extents of a call's grid
and the bounds of dims decide. A slice without a mark may still end in the tensor.
"""

from __future__ import annotations

from dataclasses import replace

from .expr import Const, Node, add, mul
from .interval import KnownBounds, coordinate_bounds, numeric_bounds, within
from .program import GridAxis
from .tensor import Axis, Region, Slice, Tensor
from .walk import free_vars, loads_of


def mark_in_bounds(region: Region, tensor: Tensor, grid: tuple[GridAxis, ...]) -> Region:
    """The region, with `is_in_bounds` set on such slices."""
    counted = (axis for axis in grid if isinstance(axis.extent, Const))
    known = within(coordinate_bounds(counted))
    axes = tuple(
        a if region.pads_axis(k) else _mark_axis(a, s, known)
        for k, (a, s) in enumerate(zip(region.axes, tensor.shape, strict=True))
    )
    return replace(region, axes=axes)


def _mark_axis(axis: Axis, size: Node, known: KnownBounds) -> Axis:
    if not isinstance(axis, Slice) or not _is_size(axis.nominal):
        return axis
    left, _ = numeric_bounds(add(size, mul(Const(-1), axis.stop)), known)
    return replace(axis, is_in_bounds=left is not None and left >= 0)


def _is_size(e: Node) -> bool:
    """True for a number or expression over dims that is never negative."""
    low, _ = numeric_bounds(e)
    return not free_vars(e) and not loads_of(e) and low is not None and low >= 0
