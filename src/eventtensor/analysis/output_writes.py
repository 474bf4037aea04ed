"""Proves that the tasks of a program write every element of its outputs.

Integer sets prove it for all dims if no run-time data decides. Otherwise the smallest dims are
searched one by one. The values that decide are then finitely many variables, constrained by bounds,
order and facts, so that the search finds an unwritten element if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import islpy as isl

from ..ir.expr import Const, Dim, Load, Node
from ..ir.interval import Bounds, numeric_bounds
from ..ir.program import GridAxis, Program
from ..ir.tensor import Point, Region, Role, Rows, Slice, Tensor, region_exprs
from ..ir.walk import free_vars, loads_of, rebuild, substitute
from .access import Access, accesses
from .check_report import Kind, Obligation, Problem, Witness
from .deps import element_map
from .sets.budget import DETOUR, OutOfBudget, budget
from .sets.isl_text import NotAffine, isl_text
from .sets.space import Scope, Side
from .sets.versions import writers
from .sets.witness import smallest

MAX_SIZES = 4  # choices of dims that are searched
MAX_PIECES = 64  # parts of writes at one choice of dims


def output_problems(program: Program, obligations: list[Obligation]) -> list[Problem]:
    """Outputs with elements that no task writes. An output that tasks accumulate into starts at
    0."""
    out = []
    for t in program.tensors:
        writes = [a for a in accesses(program)[t.name] if a.writes]
        if t.role is not Role.output or t.partial or any(a.accumulates for a in writes):
            continue
        found = _check_output(program, t, writes)
        if isinstance(found, Obligation):
            obligations.append(found)
        elif found is not None:
            out.append(found)
    return out


def _check_output(program: Program, t: Tensor, writes: list[Access]) -> Problem | Obligation | None:
    left, maybe = _elements(program, t), [a for a in writes if a.is_data_dependent]
    for a in writes:
        if not a.is_data_dependent:
            left = left.subtract(element_map(program, a).range())
    if left.is_empty():
        return None
    never = left
    for a in maybe:
        never = never.subtract(element_map(program, a).range())
    hit = smallest(never)
    if hit is not None:
        return _problem(t, writes, *hit, "")
    for dims in islice(_sizes(left), MAX_SIZES):
        unwritten = _Instance(program, t, dims).unwritten(maybe)
        if unwritten is not None:
            index, values = unwritten
            return _problem(t, writes, dims, index, f" where {values}" if values else "")
    return Obligation(f"every element of output {t.name} is written", t.place)


def _problem(
    t: Tensor, writes: list[Access], dims: dict[str, int], index: tuple[int, ...], where: str
) -> Problem:
    names = ", ".join(dict.fromkeys(f"'{a.node.call.name}'" for a in writes))
    who = f"no tile of {names} writes" if names else "no call writes"
    return Problem(
        Kind.unwritten, f"{who} {t.name}{list(index)} of output '{t.name}'{where}",
        writes[0].node.call.place if writes else t.place, Kind.unwritten.error.default_hint,
        Witness(tuple(dims.items()), (), t.name, index))


def _elements(program: Program, t: Tensor) -> isl.Set:
    scope, names = Scope(program), _names(t)
    for e, size in zip(names, t.shape, strict=True):
        scope.require(f"0 <= {e} < {isl_text(size, scope)}")
    return scope.set(names)


def _names(t: Tensor) -> tuple[str, ...]:
    return tuple(f"e{k}" for k in range(len(t.shape)))


def _sizes(left: isl.Set) -> Iterator[dict[str, int]]:
    """The dims at which elements are left, smallest first."""
    rest = left.params()
    while (hit := smallest(isl.Set.from_params(rest))) is not None:
        yield hit[0]
        here = rest
        for k in range(rest.dim(isl.dim_type.param)):
            name = rest.get_dim_name(isl.dim_type.param, k).removeprefix("d_")
            here = here.fix_val(isl.dim_type.param, k, isl.Val(hit[0][name]))
        rest = rest.subtract(here)


# ---- run-time data at given dims -----------------------------------------------------------


class _TooManyCases(Exception):
    """There are too many cases, or the program itself computes values that decide."""


@dataclass(frozen=True)
class _WritePart:
    """A part of a write: coordinates without a value, conditions (value, extent) on those with one,
    and the region."""

    open_axes: tuple[GridAxis, ...]
    conditions: tuple[tuple[int, Node], ...]
    region: Region

    @property
    def exprs(self) -> tuple[Node, ...]:
        return (
            *(a.extent for a in self.open_axes),
            *(e for _, e in self.conditions),
            *region_exprs(self.region),
        )


@dataclass
class _Instance:
    """A program at given dims. Its expressions are over coordinates and loads."""

    program: Program
    output: Tensor
    dims: dict[str, int]

    def unwritten(self, writes: list[Access]) -> tuple[tuple[int, ...], str] | None:
        """An element that none of `writes` covers, and the run-time values."""
        try:
            with budget(DETOUR):
                pieces = [q for a in writes for q in self._write_parts(a)]
                return self._search(pieces, Side(writes[0].node, "a_"))
        except (_TooManyCases, NotAffine, OutOfBudget):
            return None

    def at(self, e: Node) -> Node:
        return rebuild(e, lambda n: Const(self.dims[n.name]) if isinstance(n, Dim) else None)

    def _program_at_dims(self) -> Program:
        """Tensors and facts at these dims. The data that decides is read only, so calls do not
        matter."""
        tensors = tuple(
            replace(t, shape=tuple(map(self.at, t.shape)),
                    bound=None if t.bound is None else (self.at(t.bound[0]), self.at(t.bound[1])))
            for t in self.program.tensors)
        facts = tuple(
            replace(f, cond=self.at(f.cond),
                    over=tuple(GridAxis(a.var, self.at(a.extent)) for a in f.over))
            for f in self.program.facts)
        return Program(self.program.name, tensors, (), facts, ())

    def _search(self, pieces: list[_WritePart], side: Side) -> tuple[tuple[int, ...], str] | None:
        scope, names = Scope(self._program_at_dims()), _names(self.output)
        for e, size in zip(names, self.output.shape, strict=True):
            scope.require(f"0 <= {e} < {isl_text(self.at(size))}")
        for piece in pieces:
            for expr in piece.exprs:
                scope.resolve(expr, side)
        scope.finish()
        loads = tuple(load.name for load in scope.loads)
        left = scope.set((*names, *loads))
        for piece in pieces:
            here = scope.copy()
            self._require_written(here, side, piece, names)
            left = left.subtract(here.set((*names, *loads)))
            if left.n_basic_set() > MAX_PIECES:
                raise _TooManyCases
        hit = smallest(left)
        if hit is None:
            return None
        values = dict(zip(loads, hit[1][len(names) :], strict=True))
        told = [f"{ld.tensor}[{', '.join(map(str, ld.index))}] = {values[ld.name]}"
                for ld in scope.loads]
        return hit[1][: len(names)], " and ".join(told)

    def _require_written(
        self, scope: Scope, side: Side, piece: _WritePart, names: tuple[str, ...]
    ) -> None:
        bound = {a.var: scope.fresh("o") for a in piece.open_axes}
        for a in piece.open_axes:
            scope.require(f"0 <= {bound[a.var]} < {scope.text(a.extent, side, bound)}")
        for value, extent in piece.conditions:
            scope.require(f"{value} < {scope.text(extent, side, bound)}")
        for e, axis in zip(names, piece.region.axes, strict=True):
            match axis:
                case Point(index) | Rows(_, _, index):
                    scope.require(f"{e} = {scope.text(index, side, bound)}")
                case Slice(start, stop):
                    lo, hi = scope.text(start, side, bound), scope.text(stop, side, bound)
                    scope.require(f"{lo} <= {e} < {hi}")

    # -- coordinates that decide which values are read ------------------------------------------

    def _write_parts(self, a: Access) -> Iterator[_WritePart]:
        rows = [GridAxis(x.var, x.extent) for x in a.region.axes if isinstance(x, Rows)]
        axes = [GridAxis(x.var, self.at(x.extent)) for x in (*a.node.axes, *rows)]
        region = replace(a.region, axes=tuple(self._axis(x) for x in a.region.axes))
        loads = loads_of(*(x.extent for x in axes), *region_exprs(region))
        if any(loads_of(*ld.index) or writers(self.program, ld.tensor) for ld in loads):
            raise _TooManyCases
        needed = free_vars(*(i for ld in loads for i in ld.index))
        for x in reversed(axes):
            if x.var in needed:
                needed |= free_vars(x.extent)
        for count, piece in enumerate(self._fix_axes(axes, needed, {}, _WritePart((), (), region))):
            if count == MAX_PIECES:
                raise _TooManyCases
            yield piece

    def _axis(self, axis: Point | Slice | Rows) -> Point | Slice | Rows:
        match axis:
            case Point(index):
                return Point(self.at(index))
            case Slice(start, stop):
                return Slice(self.at(start), self.at(stop))
            case Rows(var, extent, index):
                return Rows(var, self.at(extent), self.at(index))

    def _fix_axes(
        self, axes: list[GridAxis], needed: set[str], chosen: dict[str, int], piece: _WritePart
    ) -> Iterator[_WritePart]:
        if not axes:
            yield replace(piece, region=_fix_coordinates(piece.region, chosen))
            return
        axis, rest = axes[0], axes[1:]
        extent = substitute(axis.extent, chosen)
        if axis.var not in needed:
            more = replace(piece, open_axes=(*piece.open_axes, GridAxis(axis.var, extent)))
            yield from self._fix_axes(rest, needed, chosen, more)
            return
        most = numeric_bounds(extent, self._range)[1]
        if most is None or most > MAX_PIECES:
            raise _TooManyCases
        for value in range(most):
            more = piece
            if not isinstance(extent, Const):
                more = replace(piece, conditions=(*piece.conditions, (value, extent)))
            yield from self._fix_axes(rest, needed, {**chosen, axis.var: value}, more)

    def _range(self, e: Node) -> Bounds:
        bound = self.program.tensor(e.tensor).bound if isinstance(e, Load) else None
        if bound is None:
            return None, None
        lo, hi = (self.at(b) for b in bound)
        return (lo.value, hi.value) if isinstance(lo, Const) and isinstance(hi, Const) else (
            None, None)


def _fix_coordinates(region: Region, chosen: dict[str, int]) -> Region:
    axes: list[Point | Slice | Rows] = []
    for axis in region.axes:
        match axis:
            case Point(index) | Rows(_, _, index):
                axes.append(Point(substitute(index, chosen)))
            case Slice(start, stop):
                axes.append(Slice(substitute(start, chosen), substitute(stop, chosen)))
    return replace(region, axes=tuple(axes))
