"""Gathers whose indices are numbers that the trace knows: do they lie in their tile?"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.expr import Const
from ..ir.tile import (
    Binary,
    Body,
    Broadcast,
    Cast,
    For,
    Gather,
    Iota,
    Let,
    Literal,
    Reshape,
    Stmt,
    TileType,
)

Range = tuple[int, int]


def open_gathers(body: Body) -> list[Gather]:
    """Gathers by indices of which it is not known that they lie in their tile."""
    ranges: dict[int, Range] = {}
    types: dict[int, TileType] = {}
    found = []
    for let in _lets(body.stmts):
        types[let.id] = let.type
        known = _range(let, ranges)
        if known is not None:
            ranges[let.id] = known
        if isinstance(let.op, Gather) and not _inside(let.op, ranges, types):
            found.append(let.op)
    return found


def _lets(stmts: tuple[Stmt, ...]) -> Iterator[Let]:
    for s in stmts:
        if isinstance(s, Let):
            yield s
        elif isinstance(s, For):
            yield from _lets(s.body)


def _inside(op: Gather, ranges: dict[int, Range], types: dict[int, TileType]) -> bool:
    """Values that loops carry have no known type or range here."""
    if op.index not in ranges or op.x not in types:
        return False
    size, (low, high) = types[op.x].shape[op.axis], ranges[op.index]
    return isinstance(size, Const) and low >= 0 and high < size.value


def _range(let: Let, ranges: dict[int, Range]) -> Range | None:
    """The least and the largest element. Numbers stay far from where i32 wraps."""
    found: Range | None = None
    match let.op:
        case Literal(value) if isinstance(value, int):
            found = int(value), int(value)
        case Iota():
            size = let.type.shape[0]
            found = (0, max(size.value - 1, 0)) if isinstance(size, Const) else None
        case Cast(x, dtype) if dtype.is_int:
            found = ranges.get(x)
        case Broadcast(x) | Reshape(x):
            found = ranges.get(x)
        case Binary(op, a, b) if a in ranges and b in ranges:
            found = _combined(op, ranges[a], ranges[b])
    return found if found is not None and max(map(abs, found)) < 2**30 else None


def _combined(op: str, a: Range, b: Range) -> Range | None:
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "mod" if b[0] == b[1] > 0:
            return 0, b[0] - 1
        case "floordiv" if b[0] == b[1] > 0:
            return a[0] // b[0], a[1] // b[0]
        case _:
            return None
