"""How often the values of a body are used, and which of them deserve memory of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from . import tile as t
from .expr import Load, Node
from .ops import op_exprs, operands, rereads
from .tensor import DType, Point
from .walk import free_vars, loads_of


@dataclass(slots=True)
class Uses:
    """`count` is the number of textual uses; `again` marks values that are read more than once for
    an element (by several users, in a deeper loop, or by an op that re-reads its operand);
    `named` are values that index expressions mention."""

    count: Counter[int] = field(default_factory=Counter)
    again: set[int] = field(default_factory=set)
    named: set[int] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)

    def is_used(self, id: int) -> bool:
        return self.count[id] > 0 or id in self.named


def stmt_exprs(s: t.Stmt) -> Iterator[Node]:
    """Index expressions of one statement (not of the statements inside a loop)."""
    match s:
        case t.Let(_, op, type):
            yield from type.shape
            yield from op_exprs(op)
        case t.For(_, extent, carries, _):
            yield extent
            for c in carries:
                yield from c.type.shape
        case t.Store(_, axes, _):
            yield from _axes(axes)
        case t.Accumulate():
            pass


def _axes(axes: tuple[t.SubAxis, ...]) -> Iterator[Node]:
    for a in axes:
        yield from (a.index,) if isinstance(a, Point) else (a.start, a.stop)


def named_by(s: t.Stmt) -> set[int]:
    """Values that index expressions of a statement mention."""
    return {int(v[1:]) for e in stmt_exprs(s) for v in free_vars(e) if v.startswith("%")}


def stmt_operands(s: t.Stmt) -> tuple[int, ...]:
    match s:
        case t.Let(_, op, _):
            return operands(op)
        case t.For(_, _, carries, _):
            return tuple(c.init for c in carries)
        case t.Store(_, _, value) | t.Accumulate(_, value):
            return (value,)


def needless_first(stmts: tuple[t.Stmt, ...], ids: Collection[int]) -> tuple[t.Stmt, ...]:
    """Those that need no value of these come first, up to the first that is not a value."""
    early, late, needing = list[t.Stmt](), list[t.Stmt](), set[int]()
    for k, s in enumerate(stmts):
        if not isinstance(s, t.Let):
            return (*early, *late, *stmts[k:])
        if s.id in ids or not needing.isdisjoint((*stmt_operands(s), *named_by(s))):
            needing.add(s.id)
            late.append(s)
        else:
            early.append(s)
    return (*early, *late)


def analyse(body: t.Body) -> Uses:
    uses = Uses()
    depth: dict[int, int] = {}
    types: dict[int, t.TileType] = {}
    _block(body.stmts, 0, uses, depth, types)
    return uses


def read_arguments(body: t.Body) -> set[int]:
    """The arguments whose values the body needs."""
    uses = analyse(body)
    return {
        s.op.arg for s in t.all_stmts(body.stmts)
        if isinstance(s, t.Let) and isinstance(s.op, t.Arg) and uses.is_used(s.id)
    }


def _block(
    stmts: tuple[t.Stmt, ...],
    level: int,
    uses: Uses,
    depth: dict[int, int],
    types: dict[int, t.TileType],
) -> None:
    for s in stmts:
        uses.named |= named_by(s)
        for e in stmt_exprs(s):
            uses.loads |= {n.tensor for n in loads_of(e) if isinstance(n, Load)}
        for x in stmt_operands(s):
            _use(x, level, uses, depth)
        if isinstance(s, t.Let):
            depth[s.id], types[s.id] = level, s.type
            uses.again |= set(rereads(s.op, s.type, [types[x] for x in operands(s.op)]))
        elif isinstance(s, t.For):
            depth[s.var], types[s.var] = level + 1, t.TileType(DType.i64, ())
            for c in s.carries:
                depth[c.phi], depth[c.out] = level + 1, level
                types[c.phi] = types[c.out] = c.type
            _block(s.body, level + 1, uses, depth, types)
            for c in s.carries:
                _use(c.next, level + 1, uses, depth)


def _use(id: int, level: int, uses: Uses, depth: dict[int, int]) -> None:
    uses.count[id] += 1
    if uses.count[id] > 1 or level > depth.get(id, 0):
        uses.again.add(id)
