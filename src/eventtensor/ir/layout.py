"""The layout of a region in memory: equal rows without gaps, a constant stride apart.

Regions with another layout have none here. Bulk copies need a layout with aligned rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import assert_never

from .expr import (
    Compare,
    Const,
    Dim,
    FloorDiv,
    Load,
    Max,
    Min,
    Mod,
    Node,
    Prod,
    Select,
    Sum,
    Var,
    add,
    mul,
    product,
)
from .tensor import Point, Region, Rows, Slice, Tensor, extent

BULK_ALIGN = 16  # bytes; addresses and sizes of a bulk copy are multiples of it


@dataclass(frozen=True, slots=True)
class Layout:
    """`rows` rows of `row` elements, `stride` elements apart; the first is at `offset`."""

    offset: Node
    rows: Node
    row: Node
    stride: Node


def layout_of(region: Region, tensor: Tensor) -> Layout | None:
    """None for padded and gathered regions, and for more than one level of rows."""
    if region.pad is not None:
        return None
    offset: Node = Const(0)
    rows: list[tuple[Node, Node]] = []
    row: Node = Const(1)
    open_row = True  # all axes from the last one on are whole
    for k in reversed(range(len(region.axes))):
        axis, stride = region.axes[k], product(tensor.shape[k + 1 :])
        match axis:
            case Rows():
                return None
            case Point(index):
                offset = add(offset, mul(index, stride))
                open_row = open_row and tensor.shape[k] == Const(1)
            case Slice(start, stop):
                offset = add(offset, mul(start, stride))
                n = extent(axis, tensor.shape[k], False)
                assert n is not None
                if open_row:
                    row = mul(n, stride)
                elif n != Const(1):
                    rows.append((n, stride))
                open_row = open_row and start == Const(0) and stop == tensor.shape[k]
            case _:
                assert_never(axis)
    if len(rows) > 1:
        return None
    n, stride = rows[0] if rows else (Const(1), row)
    return Layout(offset, n, row, stride)


def bulk_aligned(layout: Layout, tensor: Tensor) -> bool:
    """True if bulk copies can take all rows, for all coordinates and dims."""
    exprs = [layout.offset, layout.row]
    if layout.rows != Const(1):
        exprs.append(layout.stride)
    return all(divisor(e) * tensor.dtype.size % BULK_ALIGN == 0 for e in exprs)


def row_stride(region: Region, tensor: Tensor) -> Node:
    """Bytes from one index of the first sliced axis to the next."""
    first = next(k for k, a in enumerate(region.axes) if isinstance(a, Slice))
    return mul(product(tensor.shape[first + 1 :]), Const(tensor.dtype.size))


def panel_stride(tensor: Tensor) -> Node:
    """Bytes of one panel of packed rows, (bundles, spans, panels, halves, blocks, rows, columns):
    a bundle of panels has as many times more."""
    return mul(mul(tensor.shape[-6], product(tensor.shape[-4:])), Const(tensor.dtype.size))


def divisor(e: Node) -> int:
    """A number that divides every value of the expression. 0 divides only 0."""
    match e:
        case Const(v):
            return abs(v)
        case Dim() | Var() | Load() | Compare():
            return 1
        case FloorDiv(a, k):
            return divisor(a) // k if divisor(a) % k == 0 else 1
        case Sum(terms, const):
            return gcd(const, *(c * divisor(t) for t, c in terms))
        case Prod(factors):
            out = 1
            for f in factors:
                out *= divisor(f)
            return out
        case Mod(a, k):
            return gcd(divisor(a), k)
        case Min(a, b) | Max(a, b) | Select(_, a, b):
            return gcd(divisor(a), divisor(b))
        case _:
            assert_never(e)
