"""Cleans a finished trace: replaces constant phis, drops dead values, numbers the rest from 0.

The statements keep their order and meaning. A loop without an effect goes as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from ..ir.expr import Node, Var
from ..ir.ops import map_axes, map_op, op_exprs, operands
from ..ir.tensor import Point
from ..ir.tile import (
    Accumulate,
    Carry,
    For,
    Let,
    Op,
    Stmt,
    Store,
    SubAxis,
    TileType,
)
from ..ir.walk import free_vars, substitute

Rename = Callable[[int], int]
Pairs = tuple[tuple[Node, Node], ...]


def clean_trace(
    stmts: Iterable[Stmt], pairs: Iterable[tuple[Node, Node]], alias: dict[int, int]
) -> tuple[tuple[Stmt, ...], Pairs]:
    """Statements and pairs of equal extents, with aliases resolved and ids 0, 1, .. in order."""

    def resolved(i: int) -> int:
        while i in alias:
            i = alias[i]
        return i

    found = map_stmts(tuple(stmts), resolved)
    live = _live(found)
    found = _prune(found, live)
    order = {old: new for new, old in enumerate(_defined(found))}
    named = ((map_expr(a, resolved), map_expr(b, resolved)) for a, b in pairs)
    pending = [(a, b) for a, b in named if a != b and _ids(a, b) <= set(order)]
    numbered = tuple(
        (map_expr(a, order.__getitem__), map_expr(b, order.__getitem__))
        for a, b in dict.fromkeys(pending)
    )
    return map_stmts(found, order.__getitem__), numbered


# ---- renaming ------------------------------------------------------------------------------


def _ids(*exprs: Node) -> set[int]:
    return {int(v[1:]) for v in free_vars(*exprs) if v.startswith("%")}


def map_expr(e: Node, f: Rename) -> Node:
    ids = _ids(e)
    return substitute(e, {f"%{i}": Var(f"%{f(i)}") for i in ids}) if ids else e


def _map_type(t: TileType, f: Rename) -> TileType:
    return TileType(t.dtype, tuple(map_expr(s, f) for s in t.shape))


def _map_op(op: Op, f: Rename) -> Op:
    return map_op(op, f, lambda e: map_expr(e, f))


def map_stmts(stmts: tuple[Stmt, ...], f: Rename) -> tuple[Stmt, ...]:
    return tuple(_map_stmt(s, f) for s in stmts)


def _map_stmt(s: Stmt, f: Rename) -> Stmt:
    match s:
        case Let(i, op, t):
            return Let(f(i), _map_op(op, f), _map_type(t, f))
        case Store(arg, axes, value):
            return Store(arg, map_axes(axes, lambda e: map_expr(e, f)), f(value))
        case Accumulate(arg, value):
            return Accumulate(arg, f(value))
        case For(var, extent, carries, body):
            renamed = tuple(
                Carry(f(c.phi), f(c.init), f(c.next), f(c.out), _map_type(c.type, f))
                for c in carries
            )
            return For(f(var), map_expr(extent, f), renamed, map_stmts(body, f))
        case _:
            assert_never(s)


# ---- dead code -----------------------------------------------------------------------------


def _axis_ids(axes: tuple[SubAxis, ...]) -> set[int]:
    found: set[int] = set()
    for a in axes:
        found |= _ids(a.index) if isinstance(a, Point) else _ids(a.start, a.stop)
    return found


def _let_uses(s: Let) -> set[int]:
    return set(operands(s.op)) | _ids(*s.type.shape, *op_exprs(s.op))


def _live(stmts: tuple[Stmt, ...]) -> set[int]:
    """Values on which a store or an accumulate depends."""
    live: set[int] = set()
    before = -1
    while before != len(live):
        before = len(live)
        _mark(stmts, live)
    return live


def _mark(stmts: tuple[Stmt, ...], live: set[int]) -> bool:
    """Add what the statements need, from the last one on. True if one of them has an effect."""
    effect = False
    for s in reversed(stmts):
        match s:
            case Let():
                if s.id in live:
                    live |= _let_uses(s)
            case Store(_, axes, value):
                live |= {value} | _axis_ids(axes)
                effect = True
            case Accumulate(_, value):
                live.add(value)
                effect = True
            case For(_, extent, carries, body):
                if _mark(body, live) | _mark_carries(carries, live):
                    live |= _ids(extent)
                    effect = True
            case _:
                assert_never(s)
    return effect


def _mark_carries(carries: tuple[Carry, ...], live: set[int]) -> bool:
    found = [c for c in carries if c.out in live or c.phi in live]
    for c in found:
        live |= {c.init, c.next, c.phi, c.out} | _ids(*c.type.shape)
    return bool(found)


def _prune(stmts: tuple[Stmt, ...], live: set[int]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Let) and s.id not in live:
            continue
        if isinstance(s, For):
            carries = tuple(c for c in s.carries if c.out in live)
            body = _prune(s.body, live)
            if carries or any(not isinstance(b, Let) for b in body):
                out.append(For(s.var, s.extent, carries, body))
            continue
        out.append(s)
    return tuple(out)


def _defined(stmts: tuple[Stmt, ...]) -> Iterable[int]:
    """Ids in the order in which they are defined; a loop's results come after its body."""
    for s in stmts:
        if isinstance(s, Let):
            yield s.id
        elif isinstance(s, For):
            yield s.var
            yield from (c.phi for c in s.carries)
            yield from _defined(s.body)
            yield from (c.out for c in s.carries)
