"""Proves that indices lie in their tensors, and that combined tile axes have one extent.

The ranges of coordinates prove most indices. Integer sets find the smallest violation of the
others. Indices inside bodies are in body_bounds.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import islpy as isl

from ..ir.expr import Const, Node
from ..ir.interval import coordinate_bounds, numeric_bounds, within
from ..ir.plan import region_nest
from ..ir.program import GridAxis, PlacedCall, Program
from ..ir.tensor import Axis, Pad, Point, Region, Rows, Slice, axis_exprs, region_exprs
from ..ir.walk import free_vars, loads_of
from ..progress import doing
from .access import is_header, nodes
from .body_bounds import body_problems
from .check_report import Kind, Obligation, Problem, Task, Witness
from .extent_requirements import requirement_problems
from .sets.isl_text import NotAffine, isl_text
from .sets.space import LoadVar, Scope, Side, shape_of
from .sets.witness import smallest, smallest_of, task_of


def bounds_problems(program: Program) -> tuple[list[Problem], list[Obligation]]:
    problems = _negative_shape_problems(program) + _fact_problems(program)
    obligations: list[Obligation] = []
    for p in nodes(program):
        if is_header(p) or _unbounded_of_call(program, p):
            continue  # an index without a bound is a problem already
        call = p.call
        doing(f"the indices of call '{call.name}'")
        for region in (*call.regions, *(call.waits or ()), *(call.notifies or ())):
            problems += _region_problems(program, p, region)
        problems += _loads_of_call(program, p)
        problems += _extent_problems(program, p)
        for find in (body_problems, requirement_problems):
            found, owed = find(program, p)
            problems += found
            obligations += owed
    return problems, obligations


def _negative_shape_problems(program: Program) -> list[Problem]:
    """Tensors and event tensors with an extent that some dims make negative."""
    out = []
    named = [(t.name, t.shape) for t in program.tensors] + [
        (e.name, e.shape) for e in program.events]
    for name, shape in named:
        scope = Scope(program)
        negative = [f"{isl_text(s, scope)} < 0" for s in shape]
        scope.require("(" + (" or ".join(negative) or "0 = 1") + ")")
        hit = smallest(scope.set(()))
        if hit is not None:
            dims = ", ".join(f"{n} = {v}" for n, v in hit[0].items())
            out.append(Problem(
                Kind.out_of_range, f"{name} has a negative extent at {dims}",
                program.calls[0].call.place if program.calls else "<program>",
                "raise the min of the dim, or use et.max(extent, 0)",
                Witness(tuple(hit[0].items()), tensor=name)))
    return out


def _fact_problems(program: Program) -> list[Problem]:
    """Facts that use elements outside their tensor."""
    out: list[Problem] = []
    for fact in program.facts if program.calls else ():
        scope, side = Scope(program), Side(program.calls[0], "a_")
        names: dict[str, str] = {}
        for axis in fact.over:
            names[axis.var] = scope.fresh("f")
            extent = scope.text(axis.extent, side, names)
            scope.require(f"0 <= {names[axis.var]} < {extent}")
        scope.cond(fact.cond, side, names)
        place = program.calls[0].call.place
        for load, hit in _loads_out_of_bounds(program, scope, tuple(names.values())):
            at = ", ".join(f"{v} = {x}" for v, x in zip(names, hit[1], strict=True))
            out.append(Problem(
                Kind.out_of_range, f"the fact '{fact.cond}' reads outside {load.tensor} at {at}",
                place, "state it over a smaller range",
                Witness(tuple(hit[0].items()), tensor=load.tensor)))
    return out


def _loads_of_call(program: Program, p: PlacedCall) -> list[Problem]:
    """Indices of run-time loads in extents, regions, wait maps and counts."""
    out: list[Problem] = []
    side = Side(p, "a_")
    for depth, axis in enumerate(p.axes):
        scope = Scope(program)
        scope.domain(side, depth)
        extent = scope.text(axis.extent, side)
        out += _load_problems(program, p, scope, side.names[:depth])
        if loads_of(axis.extent):
            scope.require(f"{extent} < 0")
            scope.finish()
            out += _negative_extent(p, axis, scope.set(side.names[:depth]))
    for region in p.call.regions:
        scope = Scope(program)
        scope.domain(side)
        for a in region.axes:
            bound: dict[str, str] = {}
            if isinstance(a, Rows):
                bound = {a.var: scope.fresh("k")}
                scope.require(f"0 <= {bound[a.var]} < {scope.text(a.extent, side)}")
            for e in axis_exprs(a):
                scope.resolve(e, side, bound)
        out += _load_problems(program, p, scope, side.names)
    for region in (*(p.call.waits or ()), *(p.call.notifies or ())):
        event = program.event(region.tensor)
        scope = Scope(program)
        scope.domain(side)
        scope.cell(region_nest(region, event), event, side)
        out += _load_problems(program, p, scope, side.names)
    return out


def _negative_extent(p: PlacedCall, axis: GridAxis, where: isl.Set) -> list[Problem]:
    hit = smallest(where)
    if hit is None:
        return []
    task = Task(p.call.name, tuple(zip(p.vars, hit[1], strict=False)))
    return [Problem(
        Kind.out_of_range, f"the extent {axis.extent} of call '{p.call.name}' may be negative",
        p.call.place, "declare bound=(0, hi) on the tensor that it is read from",
        Witness(tuple(hit[0].items()), (task,)))]


def _load_problems(
    program: Program, p: PlacedCall, scope: Scope, names: tuple[str, ...]
) -> list[Problem]:
    """One problem for each tensor that a load of the scope may miss."""
    out: dict[str, Problem] = {}
    for load, hit in _loads_out_of_bounds(program, scope, names):
        task = Task(p.call.name, tuple(zip(p.vars, hit[1], strict=False)))
        out.setdefault(load.tensor, Problem(
            Kind.out_of_range,
            f"call '{p.call.name}' reads {load.tensor} outside its shape for an index",
            p.call.place, Kind.out_of_range.error.default_hint,
            Witness(tuple(hit[0].items()), (task,), load.tensor)))
    return list(out.values())


def _loads_out_of_bounds(
    program: Program, scope: Scope, names: tuple[str, ...]
) -> Iterator[tuple[LoadVar, tuple[dict[str, int], tuple[int, ...]]]]:
    """The loads of a scope that may miss their tensor, each with the smallest case."""
    for load in list(scope.loads):
        for i, size in zip(load.index, program.tensor(load.tensor).shape, strict=True):
            here = scope.copy()
            index, end = isl_text(i, here), isl_text(size, here)
            if here.is_in_range(index, end):
                continue
            here.require(f"({index} < 0 or {index} >= {end})")
            hit = smallest_of(here, names)
            if hit is not None:
                yield load, hit
                break


def _map_exprs(p: PlacedCall) -> list[Node]:
    exprs: list[Node] = [a.extent for a in p.call.grid]
    for region in (*p.call.regions, *(p.call.waits or ()), *(p.call.notifies or ())):
        exprs += region_exprs(region)
    return exprs


def unbounded_problems(program: Program) -> list[Problem]:
    """Indices and extents without a bound, for which no events can be derived."""
    return [problem for p in program.calls for problem in _unbounded_of_call(program, p)]


def _unbounded_of_call(program: Program, p: PlacedCall) -> list[Problem]:
    names = dict.fromkeys(ld.tensor for ld in loads_of(*_map_exprs(p)))
    return [
        Problem(
            Kind.unbounded_index,
            f"call '{p.call.name}' takes an index or extent from {name}, which has no bound",
            p.call.place, f"declare {name} with bound=(lo, hi)",
        )
        for name in names
        if program.tensor(name).bound is None
    ]


def _region_problems(program: Program, p: PlacedCall, region: Region) -> list[Problem]:
    out = []
    for k, (axis, size) in enumerate(
        zip(region.axes, shape_of(program, region.tensor), strict=True)
    ):
        for what, texts in _violations(axis, size, region.pad, k):
            found = _smallest_violation(program, p, texts, axis)
            if found is not None:
                out.append(Problem(
                    Kind.out_of_range,
                    f"{region} of call '{p.call.name}' {what} on axis {k}",
                    p.call.place, Kind.out_of_range.error.default_hint,
                    Witness(*found, tensor=region.tensor)))
                break
    return out


Violation = tuple[Node, str, Node, int]


def _violations(axis: Axis, size: Node, pad: Pad | None, k: int) -> list[tuple[str, Violation]]:
    """The possible violations, as comparisons (left, sign, right, offset): left sign right +
    offset."""
    lo = pad.lo[k] if pad else 0
    hi = pad.hi[k] if pad else 0
    match axis:
        case Point(index):
            return [("starts below 0", (index, "<", Const(0), -lo)),
                    ("lies beyond the end", (index, ">=", size, hi))]
        case Rows(_, extent, index):
            empty: list[tuple[str, Violation]] = [("has no rows", (extent, "<", Const(1), 0))]
            return ([] if loads_of(extent) else empty) + [
                ("starts below 0", (index, "<", Const(0), -lo)),
                ("lies beyond the end", (index, ">=", size, hi))]
        case Slice(start, stop):
            below: list[tuple[str, Violation]] = [("starts below 0", (start, "<", Const(0), -lo))]
            # a run-time slice that begins at the end is empty; one of extent 1 never is
            clipped = loads_of(start, stop) and axis.nominal != Const(1)
            beyond = hi + 1 if clipped else hi
            return [*below, ("lies wholly outside", (start, ">=", size, beyond))]
        case _:
            assert_never(axis)


def _smallest_violation(
    program: Program, p: PlacedCall, violation: Violation, axis: Axis
) -> tuple[tuple[tuple[str, int], ...], tuple[Task, ...]] | None:
    left, sign, right, offset = violation
    if _is_excluded(p, violation, axis):
        return None
    scope, side = Scope(program), Side(p, "a_")
    scope.domain(side)
    bound: dict[str, str] = {}
    if isinstance(axis, Rows) and left is axis.index:
        k = scope.fresh("k")
        scope.require(f"0 <= {k} < {scope.text(axis.extent, side)}")
        bound = {axis.var: k}
    if isinstance(axis, Slice):
        scope.require(f"{scope.text(axis.start, side)} < {scope.text(axis.stop, side)}")
    a, b = scope.text(left, side, bound), scope.text(right, side, bound)
    scope.require(f"{a} {sign} {b} + {offset}")
    hit = smallest_of(scope, side.names)
    return None if hit is None else (tuple(hit[0].items()), (task_of(p, hit[1]),))


def _is_excluded(p: PlacedCall, violation: Violation, axis: Axis) -> bool:
    """True if the ranges of the coordinates exclude the violation, so that no set is needed."""
    left, sign, right, offset = violation
    rows = [GridAxis(axis.var, axis.extent)] \
        if isinstance(axis, Rows) and left is axis.index else []
    known = within(coordinate_bounds((*p.axes, *rows)))
    (low, high), (least, most) = numeric_bounds(left, known), numeric_bounds(right, known)
    if sign == "<":
        return low is not None and most is not None and low >= most + offset
    return high is not None and least is not None and high < least + offset


def _extent_problems(program: Program, p: PlacedCall) -> list[Problem]:
    """Problems of extents that the tracer could not show equal by form."""
    out = []
    for a, b in p.call.body.equal_extents:
        computed = any(v.startswith("%") for v in free_vars(a, b))
        kind, hit = Kind.unproved if computed else Kind.unequal_extents, None
        scope, side = Scope(program), Side(p, "a_")
        try:
            scope.domain(side)
            scope.require(f"{scope.text(a, side)} != {scope.text(b, side)}")
            scope.finish()
            hit = smallest(scope.set(side.names))
        except NotAffine:
            kind = Kind.unproved
        if hit is not None or kind is Kind.unproved:
            out.append(Problem(
                kind, f"call '{p.call.name}' combines tile axes of extents {a} and {b}",
                p.call.place, kind.error.default_hint,
                Witness(tuple(hit[0].items()), (task_of(p, hit[1]),)) if hit else None))
    return out
