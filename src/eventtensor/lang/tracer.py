"""The tracer: emits the tile IR while a task body runs once on symbolic tiles.

A Python-level tile is a `Cell`, a mutable box that points to its current immutable `Value`. Inside
an et.range loop every outer cell that is touched gets a phi; phis that turn out to be constant are
renamed away when the trace is finished (lang/trace_cleanup.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ..errors import LoopEscape, NotTraceable
from ..ir.expr import Node, Var
from ..ir.tensor import DType
from ..ir.tile import Carry, Cast, For, Index, Let, Literal, Op, Stmt, TileType
from ..ir.walk import dims_of, free_vars


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the IR. `index` is what a 0-d integer stands for in index expressions."""

    id: int
    type: TileType
    index: Node | None = None

    @property
    def shape(self) -> tuple[Node, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


@dataclass(eq=False)
class Phi:
    init: Value
    phi: Value
    assigned: bool = False


@dataclass(eq=False)
class Scope:
    """The body (var -1) or a loop that is being traced."""

    var: int = -1
    extent: Node | None = None
    stmts: list[Stmt] = field(default_factory=list)
    phis: dict[Cell, Phi] = field(default_factory=dict)
    read: set[Cell] = field(default_factory=set)
    scalars: dict[tuple[Op, TileType], Value] = field(default_factory=dict)
    open: bool = True


class Cell:
    """A mutable box around a value; `frozen` cells (read arguments) are never assigned."""

    __slots__ = ("frozen", "home", "tracer", "value")

    def __init__(self, tracer: Tracer, value: Value, frozen: bool = False) -> None:
        self.tracer = tracer
        self.value = value
        self.home = tracer.scope
        self.frozen = frozen

    __hash__ = object.__hash__


class Tracer:
    """Collects statements. `names`: coordinates, loop variables and dims that a body may use."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.scopes = [Scope()]
        self.scope_of: dict[int, Scope] = {}
        self.alias: dict[int, int] = {}
        self.equal_extents: list[tuple[Node, Node]] = []
        self.extents: set[Node] = set()  # of all tiles so far
        self.written: set[int] = set()
        self.done = False

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def new_id(self) -> int:
        new = len(self.scope_of)
        self.scope_of[new] = self.scope
        return new

    def new_value(self, type_: TileType, index: Node | None = None) -> Value:
        new = self.new_id()
        self.extents.update(type_.shape)
        if index is None and not type_.shape and type_.dtype in (DType.i32, DType.i64):
            index = Var(f"%{new}")
        return Value(new, type_, index)

    def emit(self, op: Op, type_: TileType, index: Node | None = None) -> Value:
        """A new value, or the one that an open scope already has for this scalar op."""
        scalar = not type_.shape and isinstance(op, Literal | Index | Cast)
        for scope in self.scopes if scalar else ():
            if (op, type_) in scope.scalars:
                return scope.scalars[op, type_]
        value = self.new_value(type_, index)
        self.scope.stmts.append(Let(value.id, op, type_))
        if scalar:
            self.scope.scalars[op, type_] = value
        return value

    def is_computed(self, e: Node) -> bool:
        """True if a value of the body, other than a loop variable, decides it."""
        loops = {f"%{scope.var}" for scope in self.scopes}
        return any(v.startswith("%") and v not in loops for v in free_vars(e))

    def same_extent(self, a: Node, b: Node) -> None:
        """The proof has to show a == b, since their forms differ."""
        if a != b and not {(a, b), (b, a)} & set(self.equal_extents):
            self.equal_extents.append((a, b))

    # ---- cells ------------------------------------------------------------------------------

    def read(self, cell: Cell) -> Value:
        self._enter(cell)
        return cell.value

    def assign(self, cell: Cell, value: Value) -> None:
        self._enter(cell)
        if cell.home is not self.scope:
            self.scope.phis[cell].assigned = True
        cell.value = value

    def _enter(self, cell: Cell) -> None:
        """Check that a cell may be used here, and give it phis in the loops around."""
        if cell.tracer is not self or self.done:
            raise NotTraceable("a tile of another task body is used")
        if not cell.home.open:
            raise LoopEscape("a tile made inside an et.range loop is used after the loop")
        if cell.frozen:
            for scope in self.scopes:
                scope.read.add(cell)
            return
        for scope in self.scopes[self.scopes.index(cell.home) + 1 :]:
            if cell not in scope.phis:
                new = self.new_value(cell.value.type)
                self.scope_of[new.id] = scope
                scope.phis[cell] = Phi(cell.value, new)
                cell.value = new

    def is_live(self, e: Node) -> bool:
        """False if the expression names a value of a loop that is over."""
        ids = [int(v[1:]) for v in free_vars(e) if v.startswith("%")]
        return all(i in self.scope_of and self.scope_of[i].open for i in ids)

    def check_expr(self, e: Node) -> Node:
        """Only live values, coordinates, loop variables and dims may stand in a body."""
        if not self.is_live(e):
            raise LoopEscape("a number made inside an et.range loop is used after the loop")
        for name in sorted(free_vars(e)):
            if not name.startswith("%") and name not in self.names:
                raise NotTraceable(f"'{name}' is not a coordinate of this task")
        for d in sorted(dims_of(e), key=str):
            if d.name not in self.names:
                raise NotTraceable(
                    f"dim '{d.name}' is used in a body and nowhere else in the program",
                    hint="a dim gets its value from the shape of a tensor",
                )
        return e

    # ---- loops ------------------------------------------------------------------------------

    def open_loop(self, extent: Node) -> Var:
        scope = Scope(extent=extent)
        self.scopes.append(scope)
        scope.var = self.new_id()
        return Var(f"%{scope.var}")

    def close_loop(self) -> Scope:
        scope = self.scopes.pop()
        scope.open = False
        carries = []
        for cell, phi in scope.phis.items():
            if not phi.assigned:
                self.alias[phi.phi.id] = phi.init.id
                cell.value = phi.init
                continue
            out = self.new_value(phi.init.type)
            carries.append(
                Carry(phi.phi.id, phi.init.id, cell.value.id, out.id, phi.init.type)
            )
            if cell.home is not self.scope:
                self.scope.phis[cell].assigned = True
            cell.value = out
        assert scope.extent is not None
        self.scope.stmts.append(For(scope.var, scope.extent, tuple(carries), tuple(scope.stmts)))
        return scope


_CURRENT: ContextVar[Tracer | None] = ContextVar("eventtensor_tracer", default=None)


def current() -> Tracer:
    tracer = _CURRENT.get()
    if tracer is None:
        raise NotTraceable(
            "a tile function is used outside a task body", hint="call it inside an @et.task body"
        )
    return tracer


def tracing() -> bool:
    return _CURRENT.get() is not None


@contextmanager
def activated(tracer: Tracer) -> Iterator[Tracer]:
    token = _CURRENT.set(tracer)
    try:
        yield tracer
    finally:
        _CURRENT.reset(token)
        tracer.done = True
