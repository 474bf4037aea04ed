"""What a statement does to memory, and where threads converge in it. Passes and the verifier decide
by this alone: by no name, and by no text.

An access belongs to one thread (`owner`) where its index is exactly the index of an element that
the loop around it has given to that thread. Everything else, data-dependent indices among it, may
be any thread's: at worst that costs a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir.expr import Const, Node, Var
from ..ir.tensor import Region, apart
from ..ir.walk import loads_of
from . import scalar_values as v
from . import statements as st
from .buffers import Part, View
from .scopes import Mode, Scope, Space
from .traversal import body_of, exprs_of, stmt_exprs, values_of, walk


@dataclass(frozen=True, slots=True)
class Owner:
    """The thread that has an element of a view: by distribution, extents and serial axes."""

    place: tuple[object, ...]
    distribution: type[object]
    extents: tuple[Node, ...]
    serial: frozenset[int]


@dataclass(frozen=True, slots=True)
class Access:
    """`memory` names a tensor or a buffer. An access to memory that was given back since has none:
    any buffer of the arena may lie there now but those in `spares`, which were there before."""

    memory: str
    mode: Mode
    owner: Owner | None = None
    region: Region | None = None
    arena: bool = False
    spares: frozenset[str] = frozenset()

    def __str__(self) -> str:
        where = self.memory or "memory given back"
        return f"{self.mode.value} {where} {'own' if self.owner else 'any'}"


@dataclass(frozen=True, slots=True)
class Effects:
    """`meets`: the scopes at which the statement begins and ends converged. What it accesses stays
    pending unless it ends converged at the scope of its role."""

    accesses: tuple[Access, ...] = ()
    meets: tuple[Scope, Scope] = (Scope.thread, Scope.thread)


@dataclass(frozen=True, slots=True)
class _Around:
    """The loop over elements around a statement, whether one of the threads that share an element
    has been elected, and the variables of loops in between."""

    loop: st.Elements | None = None
    elected: bool = False
    inner: frozenset[str] = frozenset()

    def within(self, s: st.Stmt) -> _Around:
        match s:
            case st.Elect():
                return replace(self, elected=True)
            case st.For(var, _, _) if self.loop is not None:
                return replace(self, inner=self.inner | {var})
            case _:
                return self

    @property
    def has_owner(self) -> bool:
        """True if one thread has the element."""
        return self.loop is not None and (
            self.elected or self.loop.distribution.sharers is Scope.thread
        )


_NOWHERE = _Around()


def conflict(a: Access, b: Access) -> bool:
    """True if two accesses of a role need a convergence between them."""
    if a.mode == b.mode and a.mode is not Mode.write:
        return False
    if not a.memory or not b.memory:
        freed, other = (a, b) if not a.memory else (b, a)
        return other.arena and other.memory not in freed.spares
    if a.memory != b.memory or (a.owner is not None and a.owner == b.owner):
        return False
    return a.region is None or b.region is None or not apart(a.region, b.region)


def given_back(a: Access, spares: frozenset[str]) -> Access:
    """The access once its buffer's life is over."""
    return replace(a, memory="", owner=None, spares=spares)


def made_by(s: st.Stmt) -> frozenset[str]:
    """The buffers to which a statement gives memory, or which the frame has brought."""
    match s:
        case st.Allocate(view):
            return frozenset({view.buffer.name})
        case st.Waits(views=views):
            return frozenset(x.buffer.name for x in views)
        case _:
            return frozenset()


def effects(s: st.Stmt) -> Effects:
    """Of a statement with all that stands in it."""
    match s:
        case st.Barrier(scope, _):
            return Effects((), (scope, scope))
        case st.Waits(first=first, last=last):
            return Effects(tuple(dict.fromkeys(_direct(s, _NOWHERE))), (first, last))
        case _:
            return Effects(tuple(dict.fromkeys(_accesses(s, _NOWHERE))))


def head_effects(s: st.For | st.If) -> Effects:
    """Of a statement without its body."""
    return Effects(tuple(dict.fromkeys(_direct(s, _NOWHERE))))


def _accesses(s: st.Stmt, around: _Around) -> Iterator[Access]:
    inside = _Around(s) if isinstance(s, st.Elements) else around.within(s)
    yield from _direct(s, inside)
    for x in body_of(s):
        yield from _accesses(x, inside)


def _direct(s: st.Stmt, around: _Around) -> Iterator[Access]:
    for e in stmt_exprs(s):
        yield from _loads(e)
    for x in values_of(s):
        yield from _value_accesses(x, around)
    match s:
        case st.Store(view, index, _):
            yield _access(view, index, Mode.write, around)
            yield from _table_reads(view)
        case st.Accumulate(view, index, _, atomic):
            yield _access(view, index, Mode.add if atomic else Mode.write, around)
            yield from _table_reads(view)
        case st.Histogram(view):
            yield _access(view, (), Mode.write, _NOWHERE)
        case st.Point(view) if isinstance(view.origin, Part):
            for e in view.origin.starts:
                yield from _loads(e)
            yield from _table_reads(view.origin.base)
        case _:
            pass


def value_accesses(x: v.Scalar, loop: st.Elements) -> Iterator[Access]:
    """What evaluating a value reads, in the loop over elements around it."""
    return _value_accesses(x, _Around(loop))


def _value_accesses(x: v.Scalar, around: _Around) -> Iterator[Access]:
    for y in walk(x):
        for e in exprs_of(y):
            yield from _loads(e)
        if isinstance(y, v.Element):
            yield _access(y.view, y.index, Mode.read, around)
            yield from _table_reads(y.view)


def _loads(e: Node) -> Iterator[Access]:
    return (Access(load.tensor, Mode.read) for load in loads_of(e))


def _table_reads(view: View) -> Iterator[Access]:
    return (Access(x.name, Mode.read, arena=True) for x in view.tables if x is not None)


def _access(view: View, index: v.Index, mode: Mode, around: _Around) -> Access:
    arena = view.buffer.space is Space.arena
    return Access(view.buffer.name, mode, _owner(view, index, around), view.region, arena)


def _owner(view: View, index: v.Index, around: _Around) -> Owner | None:
    """The owner of an element, if its index is that of the loop. Along the axes of inner loops a
    thread has all elements: it owns lines."""
    loop = around.loop
    if loop is None or not around.has_owner:
        return None
    lines = frozenset(
        k for k, i in enumerate(index) if isinstance(i, Var) and i.name in around.inner
    )
    rest = tuple(i for k, i in enumerate(index) if k not in lines and i != Const(0))
    if rest != tuple(Var(a.var) for a in loop.axes):
        return None
    extents = tuple(a.extent for a in loop.axes)
    return Owner((*view.place, lines), type(loop.distribution), extents, loop.serial)
