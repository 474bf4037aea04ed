"""What the proof of a tile body has shown (analysis/body_bounds.py): which sub-tiles lie inside
their tiles, and which extents are equal though their forms differ."""

from __future__ import annotations

from ...ir import tile as t
from ...ir.expr import Const, Node
from ...ir.tensor import Point

Proved = dict[Node, set[tuple[Node, Node]]]  # pairs of start and length by extent


def equal_extents(body: t.Body) -> dict[Node, set[Node]]:
    """An extent, and those that are equal to it."""
    found: dict[Node, set[Node]] = {}
    for a, b in body.equal_extents:
        found.setdefault(a, set()).add(b)
        found.setdefault(b, set()).add(a)
    return found


def proved_parts(body: t.Body) -> Proved:
    found: Proved = {}
    types = {k: a.type for k, a in enumerate(body.args)}
    values: dict[int, t.TileType] = {}
    for s in t.all_stmts(body.stmts):
        match s:
            case t.Let(id, op, type):
                values[id] = type
                if isinstance(op, t.SliceOf):
                    _add(found, op.axes, values[op.x].shape, type.shape)
                elif isinstance(op, t.Update):
                    _add(found, op.axes, type.shape, values[op.value].shape)
            case t.For(carries=carries):
                values |= {id: c.type for c in carries for id in (c.phi, c.out)}
            case t.Store(arg, axes, value):
                _add(found, axes, types[arg].shape, values[value].shape)
            case _:
                pass
    return found


def _add(
    found: Proved, axes: tuple[t.SubAxis, ...], whole: tuple[Node, ...], part: tuple[Node, ...]
) -> None:
    lengths = iter(part)
    for a, extent in zip(axes, whole, strict=True):
        start, length = (a.index, Const(1)) if isinstance(a, Point) else (a.start, next(lengths))
        found.setdefault(extent, set()).add((start, length))
