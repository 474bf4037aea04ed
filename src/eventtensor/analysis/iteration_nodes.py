"""Iteration nodes: a task and an iteration of the loop in its body that slices an operand.

A wait in the loop orders the node, not the task, after its producers. What precedes the task
precedes all its iterations, and they end with the task. No wait deadlocks: all edges go forward in
program order, in which tasks are claimed, so the first unfinished task finds all that it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import islpy as isl

from ..ir.expr import Node, Var
from ..ir.loop_reads import loop_reads
from ..ir.plan import BodyLoop, Nest, NestAxis, nest_exprs
from ..ir.program import GridAxis, PlacedCall, Program
from ..ir.tensor import Point, Region, Slice
from ..ir.tile import SubAxis
from ..ir.walk import free_vars, substitute
from .access import ITERATION_MARK, accesses, is_header, nodes
from .deps import Dependence, element_map
from .sets.space import Scope, Side, task_domain


@dataclass(frozen=True)
class SlicedOperand:
    """A read operand that a loop of the body slices (ir/loop_reads.py): its iteration node, the
    loop, and the slices."""

    node: PlacedCall
    loop: BodyLoop
    region: Region
    slices: tuple[tuple[SubAxis, ...], ...]


def base_name(node: str) -> str:
    """The call of an iteration node. Other names stay as they are."""
    return node.split(ITERATION_MARK)[0]


def is_iteration(node: PlacedCall) -> bool:
    return ITERATION_MARK in node.call.name


def iteration_node(placed: PlacedCall, loop: BodyLoop) -> PlacedCall:
    """The call with the iteration as one more coordinate, and without accesses."""
    var = f"v{loop.var}"
    while var in placed.vars:
        var += "_"
    call = replace(
        placed.call,
        name=f"{placed.call.name}{ITERATION_MARK}{loop.var}",
        grid=(*placed.call.grid, GridAxis(var, loop.extent)),
        reads=(),
        accumulates=(),
        writes=(),
    )
    return replace(placed, call=call)


def rename_var(nests: tuple[Nest, ...], old: str, new: str) -> tuple[Nest, ...]:
    """Nests with variable `old` replaced by `new`."""
    at: dict[str, Node] = {old: Var(new)}
    return tuple(
        Nest(
            tuple(
                NestAxis(a.var, substitute(a.lo, at), substitute(a.hi, at), a.step) for a in n.axes
            ),
            tuple(substitute(g, at) for g in n.guards),
            tuple(substitute(i, at) for i in n.index),
        )
        if any(old in free_vars(e) for e in nest_exprs(n))
        else n
        for n in nests
    )


# ---- order ---------------------------------------------------------------------------------


def lift_sink(program: Program, relation: isl.Map, node: PlacedCall) -> isl.Map:
    """source -> task as source -> all iterations of the task."""
    wide = relation.add_dims(isl.dim_type.out, 1)
    return wide.intersect_range(task_domain(program, node))


def lift_source(program: Program, relation: isl.Map, node: PlacedCall) -> isl.Map:
    return lift_sink(program, relation.reverse(), node).reverse()


def task_relation(relation: isl.Map) -> isl.Map:
    """source -> iteration of a task as source -> task."""
    last = relation.dim(isl.dim_type.out) - 1
    return relation.project_out(isl.dim_type.out, last, 1)


def later_iterations(program: Program, relation: isl.Map, node: PlacedCall) -> isl.Map:
    """source -> the iterations of a task after those that `relation` has."""
    side, later = Side(node, "a_"), Side(node, "b_")
    scope = Scope(program)
    scope.domain(side)
    scope.domain(later)
    *same, last = zip(side.names, later.names, strict=True)
    scope.require(*(f"{a} = {b}" for a, b in same), f"{last[0]} < {last[1]}")
    return relation.apply_range(scope.map(side.names, later.names))


# ---- operands ------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def sliced_operands(program: Program) -> dict[tuple[str, str], SlicedOperand]:
    """All sliced operands, by call and tensor."""
    found: dict[tuple[str, str], SlicedOperand] = {}
    for placed in (n for n in nodes(program) if not is_header(n)):
        for k, read in loop_reads(placed.call).items():
            region, loop = placed.call.reads[k], BodyLoop(read.loop.var, read.loop.extent)
            node = iteration_node(placed, loop)
            found[placed.call.name, region.tensor] = SlicedOperand(node, loop, region, read.slices)
    return found


def iteration_elements(program: Program, operand: SlicedOperand) -> isl.Map:
    """Iteration of a task -> the elements of the operand that it reads."""
    side = Side(operand.node, "a_")
    names = tuple(f"e{k}" for k in range(len(operand.region.axes)))
    total = None
    for axes in operand.slices:
        scope = Scope(program)
        scope.domain(side)
        scope.elements(operand.region, side, names)
        _require_slice(scope, side, operand, axes, names)
        found = scope.map(side.names, names)
        total = found if total is None else total.union(found)
    assert total is not None
    return total.coalesce()


def _require_slice(
    scope: Scope,
    side: Side,
    operand: SlicedOperand,
    axes: tuple[SubAxis, ...],
    names: tuple[str, ...],
) -> None:
    """Require that the element lies in a slice of the region's tile."""
    bound = {f"%{operand.loop.var}": side.names[-1]}
    sliced = [
        (a, e) for a, e in zip(operand.region.axes, names, strict=True) if isinstance(a, Slice)
    ]
    for axis, (of, e) in zip(axes, sliced, strict=True):
        at = f"({e} - ({scope.text(of.start, side)}))"
        match axis:
            case Point(index):
                scope.require(f"{at} = {scope.text(index, side, bound)}")
            case Slice(start, stop):
                scope.require(
                    f"{scope.text(start, side, bound)} <= {at}",
                    f"{at} < {scope.text(stop, side, bound)}",
                )


# ---- dependences ---------------------------------------------------------------------------


def sliced_operand(program: Program, dep: Dependence) -> SlicedOperand | None:
    """The sliced operand of a dependence, if it is a read of known elements."""
    if (
        dep.kind != "raw"
        or dep.accesses is not None
        or dep.is_data_dependent
        or dep.is_later_iteration
    ):
        return None
    return sliced_operands(program).get((dep.sink.call.name, dep.tensor))


def by_iterations(program: Program, dep: Dependence, operand: SlicedOperand) -> Dependence:
    """The dependence with iterations as sinks: an iteration depends on the sources of its
    slices."""
    wrote = None
    for a in accesses(program)[dep.tensor]:
        if a.writes and a.node.call.name == dep.source.call.name:
            m = element_map(program, a)
            wrote = m if wrote is None else wrote.union(m)
    assert wrote is not None
    meet = wrote.apply_range(iteration_elements(program, operand).reverse())
    relation = meet.intersect(lift_sink(program, dep.relation, operand.node)).coalesce()
    return replace(dep, sink=operand.node, relation=relation)


def starts_earlier(program: Program, dep: Dependence, by_iteration: Dependence) -> bool:
    """True if the first iteration can run before some producer of a later one, and all iterations
    together need all that the task needs."""
    if not task_relation(by_iteration.relation).is_equal(dep.relation):
        return False
    early = lift_sink(program, dep.relation, by_iteration.sink).subtract(by_iteration.relation)
    last = early.dim(isl.dim_type.out) - 1
    return not early.fix_val(isl.dim_type.out, last, isl.Val(0)).is_empty()


def split_dependence(
    program: Program, dep: Dependence, nodes: dict[str, PlacedCall]
) -> list[Dependence]:
    """The dependences of a sink some of whose waits stand in a loop: one of the iterations that
    read the operand, and one of the task for what no iteration reads."""
    operand = sliced_operand(program, dep)
    if operand is None or operand.node.call.name not in nodes:
        return [dep]
    by_iteration = by_iterations(program, dep, operand)
    rest = dep.relation.subtract(task_relation(by_iteration.relation))
    return [by_iteration] if rest.is_empty() else [by_iteration, replace(dep, relation=rest)]
