"""Proves that indices inside task bodies lie in their tiles.

Indices that the body computes are obligations instead. Gathers are in gather_bounds.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.expr import Node
from ..ir.program import PlacedCall, Program
from ..ir.tensor import Point, Slice, axis_exprs
from ..ir.tile import (
    Body,
    For,
    Let,
    SliceOf,
    Stmt,
    Store,
    SubAxis,
    TileType,
    Update,
)
from ..ir.walk import free_vars
from .check_report import Kind, Obligation, Problem, Task, Witness
from .gather_bounds import unproved_gathers
from .sets.isl_text import NotAffine
from .sets.space import Scope, Side
from .sets.witness import smallest_of


@dataclass(frozen=True)
class _SubTile:
    """One use of sub-tile axes, the shape that they index, and the run-time loops around it."""

    what: str
    shape: tuple[Node, ...]
    axes: tuple[SubAxis, ...]
    loops: tuple[For, ...]


def body_problems(program: Program, p: PlacedCall) -> tuple[list[Problem], list[Obligation]]:
    """Sub-tile indices that may miss their tile. Those by run-time values are obligations."""
    problems: list[Problem] = []
    obligations: list[Obligation] = []
    place = p.call.place
    for site in _sub_tiles(p.call.body):
        try:
            hit = None if _is_computed(site) else _smallest_miss(program, p, site)
            known = not _is_computed(site)
        except NotAffine:
            hit, known = None, False
        if not known:
            obligations.append(Obligation(
                f"indices that the body of '{p.call.name}' computes lie in their tile", place,
                call=p.call.name))
        if hit is not None:
            task = Task(p.call.name, tuple(zip(p.vars, hit[1], strict=True)))
            problems.append(Problem(
                Kind.out_of_range, f"the body of call '{p.call.name}' {site.what} outside its tile",
                place, "loop over the extent of the tile, or slice (slices are clipped)",
                Witness(tuple(hit[0].items()), (task,))))
    if unproved_gathers(p.call.body):
        obligations.append(Obligation(
            f"the indices that '{p.call.name}' gathers by lie in their tile", place,
            call=p.call.name))
    return problems, obligations


def _is_computed(site: _SubTile) -> bool:
    """True if the indices, the shape or the loops use values that the body computes."""
    exprs = [*site.shape, *(f.extent for f in site.loops)]
    exprs += [e for a in site.axes for e in axis_exprs(a)]
    values = {v for v in free_vars(*exprs) if v.startswith("%")}
    return bool(values - {f"%{f.var}" for f in site.loops})


def _sub_tiles(body: Body) -> Iterator[_SubTile]:
    types: dict[int, TileType] = {}

    def walk(stmts: tuple[Stmt, ...], loops: tuple[For, ...]) -> Iterator[_SubTile]:
        for s in stmts:
            match s:
                case For():
                    for c in s.carries:
                        types[c.phi] = types[c.out] = c.type
                    yield from walk(s.body, (*loops, s))
                case Store(arg, axes, _):
                    yield _SubTile("assigns", body.args[arg].type.shape, axes, loops)
                case Let(id, op, type):
                    types[id] = type
                    if isinstance(op, SliceOf | Update):
                        yield _SubTile("reads", types[op.x].shape, op.axes, loops)
                case _:
                    pass

    return walk(body.stmts, ())


def _smallest_miss(
    program: Program, p: PlacedCall, site: _SubTile
) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """The smallest task in which an index may miss the tile."""
    for axis, extent in zip(site.axes, site.shape, strict=True):
        scope, side = Scope(program), Side(p, "a_")
        bound = enter_loops(scope, side, site.loops)
        size = scope.text(extent, side, bound)
        match axis:
            case Point(index):
                i = scope.text(index, side, bound)
                scope.require(f"({i} < 0 or {i} >= {size})")
            case Slice(start, stop):
                lo, hi = scope.text(start, side, bound), scope.text(stop, side, bound)
                beyond = f"{lo} > {size} or ({lo} = {size} and {size} >= 1)"
                scope.require(f"{lo} < {hi}", f"({lo} < 0 or {beyond})")
        hit = smallest_of(scope, side.names)
        if hit is not None:
            return hit
    return None


def enter_loops(scope: Scope, side: Side, loops: tuple[For, ...]) -> dict[str, str]:
    """Require a task, and an iteration of each loop of its body."""
    scope.domain(side)
    bound: dict[str, str] = {}
    for f in loops:
        v = scope.fresh("f")
        scope.require(f"0 <= {v} < {scope.text(f.extent, side, bound)}")
        bound[f"%{f.var}"] = v
    return bound
