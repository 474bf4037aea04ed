"""From programs to integer sets: the coordinates of tasks, the elements of regions, run-time data.

A `Scope` is one conjunction under construction: variables, constraints in isl's text form, and the
run-time loads met on the way. A load becomes a variable; `finish` ties the loads together by what
is known of them (equal indices give equal values, bounds, monotone, distinct, facts).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

import islpy as isl

from ..ir.expr import (
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
)
from ..ir.plan import Nest
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.tensor import Point, Region, Rows, Slice
from ..ir.walk import loads_of, substitute
from .versions import equal_loops


class NotAffine(Exception):
    """A product of dims where isl needs an affine expression; the caller answers `unproved`."""


@dataclass(frozen=True)
class Side:
    """One task of a query: a call and the prefix of its variables."""

    placed: PlacedCall
    prefix: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.prefix + v for v in self.placed.vars)


@dataclass
class LoadVar:
    side: Side
    load: Load
    name: str
    index: tuple[str, ...]


@dataclass
class Scope:
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

    def require(self, *texts: str) -> None:
        self.constraints.extend(texts)

    # -- expressions ---------------------------------------------------------------------------

    def text(self, e: Node, side: Side, bound: dict[str, str] | None = None) -> str:
        """isl text of an expression; `bound` renames variables that are not coordinates."""
        names = bound or {}

        def go(n: Node) -> str:
            match n:
                case Const(v):
                    return str(v)
                case Dim(name, _, _):
                    return "d_" + name
                case Var(name):
                    return names.get(name, side.prefix + name)
                case Sum(terms, const):
                    return "(" + " + ".join(f"{c}*{go(t)}" for t, c in terms) + f" + {const})"
                case Prod():
                    raise NotAffine(str(n))
                case FloorDiv(a, k):
                    return f"floor({go(a)}/{k})"
                case Mod(a, k):
                    return f"({go(a)} - {k}*floor({go(a)}/{k}))"
                case Min(a, b):
                    return f"min({go(a)}, {go(b)})"
                case Max(a, b):
                    return f"max({go(a)}, {go(b)})"
                case Load():
                    return self.load(n, side, tuple(go(i) for i in n.index))
                case Compare():
                    return f"({self.cond(n, side, names)} ? 1 : 0)"
                case Select(c, a, b):
                    return f"({self.cond(c, side, names)} ? {go(a)} : {go(b)})"
                case _:
                    assert_never(n)

        return go(e)

    def cond(self, e: Node, side: Side, bound: dict[str, str] | None = None) -> str:
        """isl text of a condition (Compare; Min is and, Max is or)."""
        match e:
            case Compare(op, a, b):
                sign = "<=" if op == "<=" else "="
                return f"({self.text(a, side, bound)} {sign} {self.text(b, side, bound)})"
            case Min(a, b):
                return f"({self.cond(a, side, bound)} and {self.cond(b, side, bound)})"
            case Max(a, b):
                return f"({self.cond(a, side, bound)} or {self.cond(b, side, bound)})"
            case Const(v):
                return "(0 = 0)" if v else "(0 = 1)"
            case _:
                return f"({self.text(e, side, bound)} >= 1)"

    def load(self, load: Load, side: Side, index: tuple[str, ...]) -> str:
        for known in self.loads:
            if known.side == side and known.load.tensor == load.tensor and known.index == index:
                return known.name
        name = self.fresh("v")
        self.loads.append(LoadVar(side, load, name, index))
        bound = self.program.tensor(load.tensor).bound
        if bound is not None:
            lo, hi = (self.text(b, side) for b in bound)
            self.require(f"{lo} <= {name} <= {hi}")
        return name

    # -- tasks, regions, cells -----------------------------------------------------------------

    def domain(self, side: Side, depth: int | None = None) -> None:
        """The first `depth` coordinates of the task lie in their ranges."""
        for axis in side.placed.axes[:depth]:
            name = side.prefix + axis.var
            self.require(f"0 <= {name} < {self.text(axis.extent, side)}")

    def elements(self, region: Region, side: Side, names: tuple[str, ...]) -> None:
        """`names` is an element of the tensor (or a cell of the event tensor) inside the region."""
        shape = shape_of(self.program, region.tensor)
        for axis, size, e in zip(region.axes, shape, names, strict=True):
            self.require(f"0 <= {e} < {self.text(size, side)}")
            match axis:
                case Point(index):
                    self.require(f"{e} = {self.text(index, side)}")
                case Slice(start, stop):
                    self.require(f"{self.text(start, side)} <= {e} < {self.text(stop, side)}")
                case Rows(var, extent, index):
                    k = self.fresh("k")
                    self.require(f"0 <= {k} < {self.text(extent, side)}")
                    self.require(f"{e} = {self.text(index, side, {var: k})}")
                case _:
                    assert_never(axis)

    def visits(self, nest: Nest, side: Side, names: tuple[str, ...]) -> None:
        """`names` is one of the indices that a nest visits."""
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

    # -- run-time data -------------------------------------------------------------------------

    def finish(self) -> None:
        """Say what is known of the loads. Facts may add loads, which are tied in too."""
        for _ in range(2):
            for known in list(self.loads):
                self._instantiate_facts(known)
        for k, a in enumerate(self.loads):
            for b in self.loads[:k]:
                if a.load.tensor == b.load.tensor:
                    self._tie(b, a)

    def _instantiate_facts(self, known: LoadVar) -> None:
        for fact in self.program.facts:
            variables = [axis.var for axis in fact.over]
            for pattern in loads_of(fact.cond):
                index = [i.name if isinstance(i, Var) else None for i in pattern.index]
                if pattern.tensor != known.load.tensor or set(index) != set(variables):
                    continue
                bound = {v: t for v, t in zip(index, known.index, strict=True) if v is not None}
                text = self.cond(fact.cond, known.side, bound)
                if text not in self.constraints:
                    self.require(text)

    def _tie(self, a: LoadVar, b: LoadVar) -> None:
        tensor = self.program.tensor(a.load.tensor)
        same = equal_loops(self.program, tensor.name, a.side.placed, b.side.placed)
        if same is None:
            return
        apart = [f"{a.side.prefix}{v} != {b.side.prefix}{v}" for v in same]
        pairs = list(zip(a.index, b.index, strict=True))
        if all(x == y for x, y in pairs):
            self._tie_text(apart, f"{a.name} = {b.name}")
            return
        differ = " or ".join(f"{x} != {y}" for x, y in pairs if x != y)
        self._tie_text(apart, f"({differ} or {a.name} = {b.name})")
        if tensor.monotone:
            outer = [f"{x} != {y}" for x, y in pairs[:-1] if x != y]
            x, y = pairs[-1]
            self._tie_text([*apart, *outer], f"({x} > {y} or {a.name} <= {b.name})")
            self._tie_text([*apart, *outer], f"({x} < {y} or {a.name} >= {b.name})")
        if tensor.distinct:
            fixed = [p for k, p in enumerate(pairs) if k not in tensor.distinct]
            outer = [f"{x} != {y}" for x, y in fixed if x != y]
            inside = [p for k, p in enumerate(pairs) if k in tensor.distinct]
            equal = " and ".join(f"{x} = {y}" for x, y in inside)
            self._tie_text([*apart, *outer], f"(({equal}) or {a.name} != {b.name})")

    def _tie_text(self, unless: list[str], then: str) -> None:
        self.require("(" + " or ".join([*unless, then]) + ")")

    # -- results -------------------------------------------------------------------------------

    def _body(self, visible: Iterable[str]) -> str:
        shown = set(visible)
        ranges = []
        for d in self.program.dims:
            ranges.append(f"d_{d.name} >= {d.min}")
            if d.max is not None:
                ranges.append(f"d_{d.name} <= {d.max}")
        conj = " and ".join([*ranges, *self.constraints]) or "0 = 0"
        hidden = [a for a in self.aux if a not in shown]
        return f"exists ({', '.join(hidden)} : {conj})" if hidden else conj

    def set(self, names: tuple[str, ...], tuple_name: str = "") -> isl.Set:
        text = f"[{self.params()}] -> {{ {tuple_name}[{', '.join(names)}] : {self._body(names)} }}"
        return isl.Set(text)

    def map(
        self, names: tuple[str, ...], to: tuple[str, ...], tuples: tuple[str, str] = ("", "")
    ) -> isl.Map:
        head = f"{tuples[0]}[{', '.join(names)}] -> {tuples[1]}[{', '.join(to)}]"
        return isl.Map(f"[{self.params()}] -> {{ {head} : {self._body((*names, *to))} }}")


def shape_of(program: Program, name: str) -> tuple[Node, ...]:
    for e in program.events:
        if e.name == name:
            return e.shape
    return program.tensor(name).shape


def task_domain(program: Program, placed: PlacedCall) -> isl.Set:
    """All tasks that may exist (run-time extents at their bounds)."""
    scope, side = Scope(program), Side(placed, "a_")
    scope.domain(side)
    scope.finish()
    return scope.set(side.names)


def cell_names(count: int) -> tuple[str, ...]:
    return tuple(f"c{k}" for k in range(count))


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


def rename_cells(e: Node, cells: tuple[Node, ...]) -> Node:
    """A count at a given cell: c0, c1, .. replaced."""
    return substitute(e, {f"c{k}": c for k, c in enumerate(cells)})
