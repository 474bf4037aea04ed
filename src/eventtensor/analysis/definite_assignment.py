"""Definite assignment: the elements of its write regions that a task body always assigns.

They hold for all sizes and all values. Whether tasks together write a whole output is decided in
output_writes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from ..ir.expr import Const, Node, Var, add
from ..ir.program import PlacedCall, Program
from ..ir.tensor import Axis, Point, Region, Rows, Slice, axis_exprs, region_exprs
from ..ir.tile import For, Let, Stmt, Store, SubAxis
from ..ir.walk import evaluate, free_vars, loads_of, substitute
from .check_report import Kind, Problem, Witness
from .sets.isl_text import NotAffine
from .sets.space import Scope, Side
from .sets.witness import Pair, smallest, task_of


@dataclass(frozen=True)
class _Assignment:
    """One assignment, and the run-time loops around it."""

    axes: tuple[SubAxis, ...]
    loops: tuple[For, ...]

    @property
    def exprs(self) -> tuple[Node, ...]:
        ends = (e for a in self.axes for e in axis_exprs(a))
        return (*(f.extent for f in self.loops), *ends)


def assignment_problems(program: Program) -> list[Problem]:
    """Writes that may leave elements of their region unassigned. Elements that the task reads too
    keep their value, and need no assignment."""
    return [q for p in program.calls for q in _call_problems(program, p)]


def assigns_all(program: Program, p: PlacedCall, arg: int) -> bool:
    """True if the body always assigns the whole region of a write."""
    return _is_assigned_by_form(p, arg) or bool(_unassigned(program, p, arg, ()).is_empty())


def _call_problems(program: Program, p: PlacedCall) -> Iterator[Problem]:
    call = p.call
    if not call.body.args:
        return
    first = len(call.reads) + len(call.accumulates)
    for k, region in enumerate(call.writes):
        read = tuple(r for r in call.reads if r.tensor == region.tensor)
        if _is_assigned_by_form(p, first + k) or region in read:
            continue
        hit = smallest(_unassigned(program, p, first + k, read))
        if hit is not None:
            yield _problem(p, region, hit)


def _problem(p: PlacedCall, region: Region, hit: Pair) -> Problem:
    dims, values = hit
    task = task_of(p, values[: len(p.vars)])
    inside = values[len(p.vars) :]
    index: tuple[int, ...] | None = None
    if not loads_of(*region_exprs(region)):
        names = {**dims, **dict(zip(p.vars, values, strict=False))}
        index = tuple(
            evaluate(e, {**names, **dict(zip(_axis_names(len(inside)), inside, strict=True))})
            for e in _element_indices(region)
        )
    what = f"{region.tensor}{list(index)}" if index is not None else f"element {list(inside)} of it"
    return Problem(
        Kind.unassigned, f"{task} declares that it writes {region}, but its body may leave {what} "
        "unassigned", p.call.place, Kind.unassigned.error.default_hint,
        Witness(tuple(dims.items()), (task,), region.tensor, index))


def _is_assigned_by_form(p: PlacedCall, arg: int) -> bool:
    """True if a statement outside of loops assigns the whole tile."""
    whole = tuple(Slice(Const(0), size) for size in p.call.body.args[arg].type.shape)
    return any(isinstance(s, Store) and s.arg == arg and s.axes == whole
               for s in p.call.body.stmts)


def _unassigned(program: Program, p: PlacedCall, arg: int, read: tuple[Region, ...]) -> isl.Set:
    """Tasks and elements of their tile which no assignment covers for some run-time values. The
    regions `read` count as covered."""
    scope, side = Scope(program), Side(p, "a_")
    scope.domain(side)
    shape = p.call.body.args[arg].type.shape
    elements = _axis_names(len(shape))
    for e, size in zip(elements, shape, strict=True):
        scope.require(f"0 <= {e} < {scope.text(size, side)}")
    sites = [s for s in _assignments(p.call.body.stmts, arg) if _is_invariant(s)]
    plain = [
        r for r in read if not loads_of(*region_exprs(r), *region_exprs(_write_region(p, arg)))
    ]
    for site in sites:
        for expr in site.exprs:
            scope.resolve(expr, side, {f"%{f.var}": "f" for f in site.loops})
    scope.finish()
    computed = [a for a in scope.aux if a.startswith("u_")]
    between = (*(load.name for load in scope.loads), *computed)
    visible = (*side.names, *between, *elements)
    left = scope.set(visible)
    for site in sites:
        here = scope.copy()
        try:
            _require_assigned(here, side, site, elements)
        except NotAffine:
            continue
        left = left.subtract(here.set(visible))
    for region in plain:
        here = scope.copy()
        _require_read(here, side, region, _element_indices(_write_region(p, arg)), elements)
        left = left.subtract(here.set(visible))
    return left.project_out(isl.dim_type.set, len(side.names), len(between))


def _write_region(p: PlacedCall, arg: int) -> Region:
    return p.call.regions[arg]


def _axis_names(count: int) -> tuple[str, ...]:
    return tuple(f"e{k}" for k in range(count))


def _element_indices(region: Region) -> tuple[Node, ...]:
    """The index in the tensor of element e0, e1, .. of the tile."""
    found: list[Node] = []
    used = 0
    for axis in region.axes:
        found.append(_element_index(axis, Var(f"e{used}")))
        used += not isinstance(axis, Point)
    return tuple(found)


def _element_index(axis: Axis, e: Var) -> Node:
    match axis:
        case Point(index):
            return index
        case Slice(start, _):
            return add(start, e)
        case Rows(var, _, index):
            return substitute(index, {var: e})


def _assignments(
    stmts: tuple[Stmt, ...], arg: int, loops: tuple[For, ...] = ()
) -> Iterator[_Assignment]:
    for s in stmts:
        if isinstance(s, For):
            yield from _assignments(s.body, arg, (*loops, s))
        elif isinstance(s, Store) and s.arg == arg:
            yield _Assignment(s.axes, loops)


def _is_invariant(site: _Assignment) -> bool:
    """False if an iteration computes or reads the values that decide where it assigns. They differ
    between iterations, so nothing is known of all iterations together."""
    changing = {f"%{v}" for f in site.loops for v in _defined_values(f.body)}
    own = {f"%{f.var}" for f in site.loops}
    if free_vars(*site.exprs) & (changing - own):
        return False
    return not any(v.startswith("%") for ld in loads_of(*site.exprs) for v in free_vars(*ld.index))


def _defined_values(stmts: tuple[Stmt, ...]) -> Iterator[int]:
    """The values that statements define, with the carried values of loops."""
    for s in stmts:
        match s:
            case Let(id, _, _):
                yield id
            case For(var, _, carries, body):
                yield var
                for c in carries:
                    yield from (c.phi, c.out)
                yield from _defined_values(body)
            case _:
                pass


def _require_assigned(
    scope: Scope, side: Side, site: _Assignment, elements: tuple[str, ...]
) -> None:
    """Require that the element lies in the sub-tile of some iteration."""
    bound: dict[str, str] = {}
    for f in site.loops:
        v = scope.fresh("f")
        scope.require(f"0 <= {v} < {scope.text(f.extent, side, bound)}")
        bound[f"%{f.var}"] = v
    for e, axis in zip(elements, site.axes, strict=True):
        match axis:
            case Point(index):
                scope.require(f"{e} = {scope.text(index, side, bound)}")
            case Slice(start, stop):
                lo, hi = scope.text(start, side, bound), scope.text(stop, side, bound)
                scope.require(f"{lo} <= {e} < {hi}")


def _require_read(
    scope: Scope, side: Side, region: Region, at: tuple[Node, ...], elements: tuple[str, ...]
) -> None:
    """Require that the tensor element with index `at` lies in a region that the task reads."""
    bound = {e: e for e in elements}
    names = tuple(scope.fresh("t") for _ in at)
    for name, e in zip(names, at, strict=True):
        scope.require(f"{name} = {scope.text(e, side, bound)}")
    scope.elements(region, side, names)
