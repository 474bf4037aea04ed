"""The tracer: emits the tile IR while a task body runs once on symbolic tiles.

A Python-level tile is a `Variable`, which points to its current immutable `Value`. An et.range loop
gives a phi to each outer variable that its body touches. lang/trace_cleanup.py then drops the phis
that are constant. Operations and their dtype rules are not here, but in lang/values.py.
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
    """A value of the IR. `index` is a 0-d integer as an index expression."""

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
    is_assigned: bool = False


@dataclass(eq=False)
class Scope:
    """The body (`var` is -1) or a loop, as far as it is traced."""

    var: int = -1
    extent: Node | None = None
    stmts: list[Stmt] = field(default_factory=list)
    phis: dict[Variable, Phi] = field(default_factory=dict)
    read: set[Variable] = field(default_factory=set)
    scalars: dict[tuple[Op, TileType], Value] = field(default_factory=dict)
    is_open: bool = True


class Variable:
    """A name for a value that changes. A read argument is read only. `scope` made the variable."""

    __slots__ = ("is_read_only", "scope", "tracer", "value")

    def __init__(self, tracer: Tracer, value: Value, is_read_only: bool = False) -> None:
        self.tracer = tracer
        self.value = value
        self.scope = tracer.scope
        self.is_read_only = is_read_only

    __hash__ = object.__hash__


class Tracer:
    """Collects statements. A body may use the coordinates, loop variables and dims in `names`."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.scopes = [Scope()]
        self.scope_of: dict[int, Scope] = {}
        self.alias: dict[int, int] = {}
        self.equal_extents: list[tuple[Node, Node]] = []
        self.extents: set[Node] = set()  # of all tiles traced so far
        self.assigned_args: set[int] = set()
        self.is_closed = False

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
        """Emit an op. A scalar op that an open scope has already is not emitted again."""
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
        """True if the expression depends on a value of the body that is no loop variable."""
        loops = {f"%{scope.var}" for scope in self.scopes}
        return any(v.startswith("%") and v not in loops for v in free_vars(e))

    def require_equal_extents(self, a: Node, b: Node) -> None:
        """Record that the proof must show a == b, because their forms differ."""
        if a != b and not {(a, b), (b, a)} & set(self.equal_extents):
            self.equal_extents.append((a, b))

    # ---- variables --------------------------------------------------------------------------

    def read(self, variable: Variable) -> Value:
        self._enter(variable)
        return variable.value

    def assign(self, variable: Variable, value: Value) -> None:
        self._enter(variable)
        if variable.scope is not self.scope:
            self.scope.phis[variable].is_assigned = True
        variable.value = value

    def _enter(self, variable: Variable) -> None:
        """Check that a variable may be used here, and give it a phi in each loop around."""
        if variable.tracer is not self or self.is_closed:
            raise NotTraceable("a tile of another task body is used")
        if not variable.scope.is_open:
            raise LoopEscape("a tile made inside an et.range loop is used after the loop")
        if variable.is_read_only:
            for scope in self.scopes:
                scope.read.add(variable)
            return
        for scope in self.scopes[self.scopes.index(variable.scope) + 1 :]:
            if variable not in scope.phis:
                new = self.new_value(variable.value.type)
                self.scope_of[new.id] = scope
                scope.phis[variable] = Phi(variable.value, new)
                variable.value = new

    def is_live(self, e: Node) -> bool:
        """False if the expression names a value of a closed loop."""
        ids = [int(v[1:]) for v in free_vars(e) if v.startswith("%")]
        return all(i in self.scope_of and self.scope_of[i].is_open for i in ids)

    def check_expr(self, e: Node) -> Node:
        """Refuse what is no live value, coordinate, loop variable or dim of the body."""
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
        scope.is_open = False
        carries = []
        for variable, phi in scope.phis.items():
            if not phi.is_assigned:
                self.alias[phi.phi.id] = phi.init.id
                variable.value = phi.init
                continue
            out = self.new_value(phi.init.type)
            carries.append(Carry(phi.phi.id, phi.init.id, variable.value.id, out.id, phi.init.type))
            if variable.scope is not self.scope:
                self.scope.phis[variable].is_assigned = True
            variable.value = out
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
def active_tracer(tracer: Tracer) -> Iterator[Tracer]:
    token = _CURRENT.set(tracer)
    try:
        yield tracer
    finally:
        _CURRENT.reset(token)
        tracer.is_closed = True
