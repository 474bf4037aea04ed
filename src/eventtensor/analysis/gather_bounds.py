"""Bounds of gathers by indices that the body computes, for all data.

Ranges of integer tiles follow from the ops. A gather whose indices may miss its tile is an
obligation.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import add, mul, sub

from ..ir.expr import Const, Var, floordiv, maximum, minimum, mod
from ..ir.interval import numeric_bounds, within
from ..ir.tensor import DType
from ..ir.tile import (
    ArgMax,
    Binary,
    Body,
    Broadcast,
    Cast,
    Concat,
    For,
    Gather,
    Iota,
    Let,
    Literal,
    Reshape,
    SliceOf,
    Sort,
    Stmt,
    TileType,
    TopK,
    Transpose,
    Where,
)

Range = tuple[int, int]
_INDEX_OPS = {"add": add, "sub": sub, "mul": mul, "min": minimum, "max": maximum}
_INDEX_OPS_BY_CONSTANT = {"mod": mod, "floordiv": floordiv}


def unproved_gathers(body: Body) -> list[Gather]:
    """Gathers whose indices may miss their tile."""
    ranges: dict[int, Range] = {}
    types: dict[int, TileType] = {}
    found = []
    for let in _lets(body.stmts):
        types[let.id] = let.type
        known = _range(let, ranges, types)
        if known is not None:
            ranges[let.id] = known
        if isinstance(let.op, Gather) and not _is_in_bounds(let.op, ranges, types):
            found.append(let.op)
    return found


def _lets(stmts: tuple[Stmt, ...]) -> Iterator[Let]:
    for s in stmts:
        if isinstance(s, Let):
            yield s
        elif isinstance(s, For):
            yield from _lets(s.body)


def _is_in_bounds(op: Gather, ranges: dict[int, Range], types: dict[int, TileType]) -> bool:
    """True if all indices lie in the tile. Carried values of loops have no range here."""
    if op.index not in ranges or op.x not in types:
        return False
    size, (low, high) = types[op.x].shape[op.axis], ranges[op.index]
    return isinstance(size, Const) and low >= 0 and high < size.value


def _range(let: Let, ranges: dict[int, Range], types: dict[int, TileType]) -> Range | None:
    """The least and the largest element, if they are far from the ends of i32."""
    found: Range | None = None
    match let.op:
        case Literal(value) if isinstance(value, int):
            found = int(value), int(value)
        case Iota():
            found = _axis_range(let.type, 0)
        case Sort(x, axis, indices=True) if x in types:
            found = _axis_range(types[x], axis)
        case (ArgMax(x) | TopK(x, _, indices=True)) if x in types:
            found = _axis_range(types[x], -1)
        case Cast(x, dtype) if dtype.is_int and x in ranges:
            found = ranges[x] if dtype is not DType.u8 or _fits(ranges[x], 255) else (0, 255)
        case Broadcast(x) | Reshape(x) | Transpose(x) | SliceOf(x) | Gather(x):
            found = ranges.get(x)
        case Where(_, a, b):
            found = _union_range((a, b), ranges)
        case Concat(xs):
            found = _union_range(xs, ranges)
        case Binary("and", a, b) if let.type.dtype.is_int:
            found = _mask_range(ranges.get(a), ranges.get(b))
        case Binary(op, a, b) if a in ranges and b in ranges:
            found = _binary_range(op, ranges[a], ranges[b])
    return found if found is not None and max(map(abs, found)) < 2**30 else None


def _axis_range(type_: TileType, axis: int) -> Range | None:
    """The range of the indices of an axis."""
    size = type_.shape[axis]
    return (0, max(size.value - 1, 0)) if isinstance(size, Const) else None


def _fits(a: Range, high: int) -> bool:
    return a[0] >= 0 and a[1] <= high


def _union_range(xs: tuple[int, ...], ranges: dict[int, Range]) -> Range | None:
    if any(x not in ranges for x in xs):
        return None
    return min(ranges[x][0] for x in xs), max(ranges[x][1] for x in xs)


def _mask_range(a: Range | None, b: Range | None) -> Range | None:
    """An `and` with a non-negative number lies between 0 and that number."""
    highs = [r[1] for r in (a, b) if r is not None and r[0] >= 0]
    return (0, min(highs)) if highs else None


def _binary_range(op: str, a: Range, b: Range) -> Range | None:
    x, y = Var("x"), Var("y")
    if op in ("or", "xor") and a[0] >= 0 and b[0] >= 0:
        return 0, (1 << max(a[1], b[1]).bit_length()) - 1
    if op in _INDEX_OPS:
        found = _INDEX_OPS[op](x, y)
    elif op in _INDEX_OPS_BY_CONSTANT and b[0] == b[1] > 0:
        found = _INDEX_OPS_BY_CONSTANT[op](x, b[0])
    else:
        return None
    low, high = numeric_bounds(found, within({"x": a, "y": b}))
    return None if low is None or high is None else (low, high)
