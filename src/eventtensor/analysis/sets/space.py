"""From programs to integer sets: tasks, elements of regions, cells, and run-time data.

A `Scope` is one conjunction under construction: variables, constraints as isl text, and run-time
loads, each of which is a variable. `finish` relates the loads: equal indices give equal values, and
bounds, order, distinct values and facts hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import assert_never

import islpy as isl

from ...ir.expr import (
    Compare,
    Const,
    Load,
    Node,
    Select,
    Var,
    add,
    mul,
)
from ...ir.plan import Nest
from ...ir.program import EventTensor, Fact, PlacedCall, Program
from ...ir.tensor import Point, Region, Rows, Slice
from ...ir.walk import loads_of, rebuild, substitute
from .isl_text import different, isl_cond, isl_text, minimum_parts, rising
from .versions import equal_loops


@dataclass(frozen=True)
class Side:
    """One task of a query: a call and the prefix of its variables. Loops in `shared` are variables
    of the other task, because both are in the same iteration. `is_after_body`: the task reads data
    after its body, for its notify maps."""

    placed: PlacedCall
    prefix: str
    shared: tuple[str, ...] = ()
    is_after_body: bool = False

    def after_body(self) -> Side:
        return replace(self, is_after_body=True)

    def name(self, var: str) -> str:
        return ("a_" if var in self.shared else self.prefix) + var

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.name(v) for v in self.placed.vars)


def sides_of(a: PlacedCall, b: PlacedCall, shared: int = 0) -> tuple[Side, Side]:
    """Two tasks, in the same iteration of their `shared` outermost loops."""
    return Side(a, "a_"), Side(b, "b_", tuple(lp.var for lp in a.loops[:shared]))


@dataclass(frozen=True)
class LoadVar:
    """A run-time value: its variable, and its index over the variables of the scope."""

    side: Side
    tensor: str
    name: str
    index: tuple[Node, ...]


@dataclass
class Scope:
    """A conjunction under construction."""

    program: Program
    aux: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    loads: list[LoadVar] = field(default_factory=list)

    def params(self) -> str:
        return ", ".join("d_" + d.name for d in self.program.dims)

    def fresh(self, hint: str) -> str:
        name = f"{hint}_{len(self.aux)}"
        self.aux.append(name)
        return name

    def copy(self) -> Scope:
        """A copy. Later constraints of the copy are its own."""
        return Scope(self.program, list(self.aux), list(self.constraints), list(self.loads))

    def require(self, *texts: str) -> None:
        self.constraints.extend(texts)

    # -- expressions ---------------------------------------------------------------------------

    def text(self, e: Node, side: Side, bound: dict[str, str] | None = None) -> str:
        """isl text of an expression. `bound` renames variables that are no coordinates."""
        return isl_text(self.resolve(e, side, bound), self)

    def cond(self, e: Node, side: Side, bound: dict[str, str] | None = None) -> str:
        """isl text of a condition (Compare; Min is and, Max is or)."""
        return isl_cond(self.resolve(e, side, bound), self)

    def resolve(self, e: Node, side: Side, bound: dict[str, str] | None = None) -> Node:
        """The expression over the variables of this scope. Each load is one of them."""
        names = bound or {}

        def leaf(n: Node) -> Node | None:
            match n:
                case Var(name) if name not in names and name.startswith("%"):
                    return Var(self.unknown(name))
                case Var(name):
                    return Var(names.get(name) or side.name(name))
                case Load(tensor, index):
                    return Var(self.load(tensor, side, tuple(rebuild(i, leaf) for i in index)))
                case _:
                    return None

        return rebuild(e, leaf)

    def unknown(self, value: str) -> str:
        """The variable of a value of a body, which may be any integer."""
        name = "u_" + value[1:]
        if name not in self.aux:
            self.aux.append(name)
        return name

    def remove_choices(self, e: Node) -> Node:
        """Replace choices (Select, and Compare as a number) by variables."""

        def leaf(n: Node) -> Node | None:
            match n:
                case Select(c, a, b):
                    v, cond = self.fresh("s"), isl_cond(c, self)
                    x, y = isl_text(a, self), isl_text(b, self)
                    self.require(f"(({cond} and {v} = {x}) or (not {cond} and {v} = {y}))")
                    return Var(v)
                case Compare():
                    return self.remove_choices(Select(n, Const(1), Const(0)))
                case _:
                    return None

        return rebuild(e, leaf)

    def load(self, tensor: str, side: Side, index: tuple[Node, ...]) -> str:
        for known in self.loads:
            if known.side == side and known.tensor == tensor and known.index == index:
                return known.name
        name = self.fresh("v")
        self.loads.append(LoadVar(side, tensor, name, index))
        bound = self.program.tensor(tensor).bound
        if bound is not None:
            lo, hi = isl_text(bound[0], self), isl_text(bound[1], self)
            self.require(f"{lo} <= {name} <= {hi}")
        return name

    # -- tasks, regions, cells -----------------------------------------------------------------

    def domain(self, side: Side, depth: int | None = None) -> None:
        """Require that the first `depth` coordinates of the task lie in their ranges."""
        for axis in side.placed.axes[:depth]:
            self.require_range("0", side.name(axis.var), self.resolve(axis.extent, side))

    def require_range(self, lo: str, name: str, hi: Node) -> None:
        """Require lo <= name < hi. A minimum is two bounds, because one would give two pieces."""
        first, *more = [isl_text(part, self) for part in minimum_parts(hi)]
        self.require(f"{lo} <= {name} < {first}", *(f"{name} < {other}" for other in more))

    def elements(self, region: Region, side: Side, names: tuple[str, ...]) -> None:
        """Require that `names` is an element or cell in the region."""
        shape = shape_of(self.program, region.tensor)
        for axis, size, e in zip(region.axes, shape, names, strict=True):
            self.require(f"0 <= {e} < {self.text(size, side)}")
            match axis:
                case Point(index):
                    self.require(f"{e} = {self.text(index, side)}")
                case Slice(start, stop):
                    self.require_range(self.text(start, side), e, self.resolve(stop, side))
                case Rows(var, extent, index):
                    k = self.fresh("k")
                    self.require(f"0 <= {k} < {self.text(extent, side)}")
                    self.require(f"{e} = {self.text(index, side, {var: k})}")
                case _:
                    assert_never(axis)

    def visits(self, nest: Nest, side: Side, names: tuple[str, ...]) -> None:
        """Require that `names` is an index that the nest visits."""
        bound: dict[str, str] = {}
        for axis in nest.axes:
            v = self.fresh("c")
            lo, hi = self.text(axis.lo, side, bound), self.text(axis.hi, side, bound)
            self.require(f"{lo} <= {v} < {hi}")
            if axis.step != 1:
                self.require(f"({v} - {lo}) mod {axis.step} = 0")
            bound[axis.var] = v
        self.require(*(self.cond(g, side, bound) for g in nest.guards))
        for e, index in zip(names, nest.index, strict=True):
            self.require(f"{e} = {self.text(index, side, bound)}")

    def cell(self, nest: Nest, event: EventTensor, side: Side) -> None:
        """Require a cell that the nest visits, with the loads of its count."""
        cells = tuple(self.fresh("c") for _ in event.shape)
        self.visits(nest, side, cells)
        if event.count is not None:
            names = dict(zip(cell_names(len(cells)), cells, strict=True))
            self.resolve(event.count, side, names)

    # -- run-time data -------------------------------------------------------------------------

    def finish(self) -> None:
        """Require all that is known of the loads. Facts may add loads, which are related too."""
        patterns = [(f, load) for f in self.program.facts for load in loads_of(f.cond)]
        count = 0
        for _ in range(2):
            fresh, count = self.loads[count:], len(self.loads)
            for known in fresh:
                for fact, pattern in patterns:
                    if pattern.tensor == known.tensor:
                        self._instantiate(fact, pattern, known)
        for k, a in enumerate(self.loads):
            for b in self.loads[:k]:
                if a.tensor == b.tensor:
                    self._relate(b, a)

    def _instantiate(self, fact: Fact, pattern: Load, known: LoadVar) -> None:
        """Require a fact at the values of its variables that make `pattern` the known load."""
        names = [i.name if isinstance(i, Var) else None for i in pattern.index]
        if fact.over and set(names) != {axis.var for axis in fact.over}:
            return
        if not fact.over and pattern.index != known.index:
            return
        at = {v: i for v, i in zip(names, known.index, strict=True) if v is not None}
        marked = {v: Var("=" + v) for v in at}
        outside = []
        for axis in fact.over:
            value = isl_text(at[axis.var], self)
            end = isl_text(self._at(substitute(axis.extent, marked), at, known.side), self)
            if not self.is_in_range(value, end):
                outside += [f"{value} < 0", f"{value} >= {end}"]
        cond = self._at(substitute(fact.cond, marked), at, known.side)
        text = "(" + " or ".join([*outside, isl_cond(cond, self)]) + ")"
        if text not in self.constraints:
            self.require(text)

    def is_in_range(self, value: str, end: str) -> bool:
        """True if a constraint has the form 0 <= value < end."""
        return f"0 <= {value} < {end}" in self.constraints

    def _at(self, e: Node, at: dict[str, Node], side: Side) -> Node:
        """An expression of a fact, with values for the variables of the fact."""

        def leaf(n: Node) -> Node | None:
            match n:
                case Var(name) if name.startswith("="):
                    return at[name[1:]]
                case Load(tensor, index):
                    return Var(self.load(tensor, side, tuple(rebuild(i, leaf) for i in index)))
                case _:
                    return None

        return rebuild(e, leaf)

    def _relate(self, a: LoadVar, b: LoadVar) -> None:
        """Require what the indices of two loads of one tensor say of their values."""
        tensor = self.program.tensor(a.tensor)
        same = equal_loops(
            self.program,
            tensor.name,
            (a.side.placed, a.side.is_after_body),
            (b.side.placed, b.side.is_after_body),
        )
        if same is None:
            return
        apart = [f"{a.side.name(v)} != {b.side.name(v)}" for v in same
                 if a.side.name(v) != b.side.name(v)]
        gaps = [add(x, mul(Const(-1), y)) for x, y in zip(a.index, b.index, strict=True)]
        last = gaps[-1] if tensor.monotone else Const(0)
        outer = gaps[:-1] if tensor.monotone else gaps
        if not any(isinstance(g, Const) and g.value for g in outer):
            unless = apart + [f"{isl_text(g)} != 0" for g in outer if not isinstance(g, Const)]
            self._either(unless, rising(last, a.name, b.name))
        if tensor.distinct:
            fixed = [g for k, g in enumerate(gaps) if k not in tensor.distinct]
            inside = [g for k, g in enumerate(gaps) if k in tensor.distinct]
            if not any(isinstance(g, Const) and g.value for g in fixed):
                unless = apart + [f"{isl_text(g)} != 0" for g in fixed if not isinstance(g, Const)]
                self._either(unless, different(inside, a.name, b.name))

    def _either(self, unless: list[str], then: str) -> None:
        if then:
            self.require("(" + " or ".join([*unless, then]) + ")")

    # -- results -------------------------------------------------------------------------------

    def _body(self, visible: Iterable[str], hidden: Iterable[str] = ()) -> str:
        shown = set(visible)
        conj = " and ".join(dict.fromkeys(self.constraints)) or "0 = 0"
        gone = [*hidden, *(a for a in self.aux if a not in shown)]
        return f"exists ({', '.join(gone)} : {conj})" if gone else conj

    def _dims(self) -> str:
        """isl text: the dims lie in their ranges."""
        ranges = [f"d_{d.name} >= {d.min}" for d in self.program.dims]
        ranges += [f"d_{d.name} <= {d.max}" for d in self.program.dims if d.max is not None]
        return f"[{self.params()}] -> {{ : {' and '.join(ranges)} }}"

    def set(self, names: tuple[str, ...]) -> isl.Set:
        body = self._body(names)
        text = f"[{self.params()}] -> {{ [{', '.join(names)}] : {body} }}"
        return _read_set(text, self._dims())

    def map(
        self, names: tuple[str, ...], to: tuple[str, ...], hide: tuple[Side, ...] = ()
    ) -> isl.Map:
        """names -> to. The other coordinates of the tasks in `hide` are projected out."""
        shown = (*names, *to)
        hidden = [n for side in hide for n in side.names if n not in shown]
        head = f"[{', '.join(names)}] -> [{', '.join(to)}]"
        text = f"[{self.params()}] -> {{ {head} : {self._body(shown, hidden)} }}"
        return _read_map(text, self._dims())


@lru_cache(maxsize=4096)
def _read_set(text: str, dims: str) -> isl.Set:
    """Cached, because unrolled layers of a model ask the same questions. isl's objects are
    immutable."""
    return isl.Set(text).intersect_params(_read_dims(dims))


@lru_cache(maxsize=4096)
def _read_map(text: str, dims: str) -> isl.Map:
    return isl.Map(text).intersect_params(_read_dims(dims))


@lru_cache(maxsize=16)
def _read_dims(text: str) -> isl.Set:
    """Read once, because in every text the dims would cost as much as the rest."""
    return isl.Set(text)


def shape_of(program: Program, name: str) -> tuple[Node, ...]:
    for e in program.events:
        if e.name == name:
            return e.shape
    return program.tensor(name).shape


def task_domain(program: Program, placed: PlacedCall) -> isl.Set:
    """All tasks that may exist, with run-time extents at their bounds."""
    scope, side = Scope(program), Side(placed, "a_")
    scope.domain(side)
    scope.finish()
    return scope.set(side.names)


def cell_names(count: int) -> tuple[str, ...]:
    return tuple(f"c{k}" for k in range(count))


def cell_space(program: Program, event: EventTensor) -> isl.Set:
    """All cells of an event tensor."""
    scope, names = Scope(program), cell_names(len(event.shape))
    for name, size in zip(names, event.shape, strict=True):
        scope.require(f"0 <= {name} < {isl_text(size, scope)}")
    return scope.set(names)


def cell_map(
    program: Program, placed: PlacedCall, event: EventTensor, nests: tuple[Nest, ...],
    depth: int | None = None,
) -> isl.Map:
    """Task coordinates (the first `depth`) -> cells that `nests` visit."""
    cells = cell_names(len(event.shape))
    side = Side(placed, "a_")
    names = side.names[:depth]
    total = None
    for nest in nests:
        scope = Scope(program)
        scope.domain(side, depth)
        scope.visits(nest, side, cells)
        scope.finish()
        found = scope.map(names, cells)
        total = found if total is None else total.union(found)
    if total is None:
        scope = Scope(program)
        scope.require("0 = 1")
        total = scope.map(names, cells)
    return total
