"""Read operands that a body walks in chunks (ir/loop_reads.py): which tasks an iteration needs.

A *chunk node* stands for a task and an iteration of the loop in its body. A wait that stands in the
loop orders the node, not the task, after its producers; what comes before the task comes before all
its iterations, and they are done when the task ends. Progress is as for other waits: all edges go
forward in program order, in which tasks are claimed, so the first task that has not ended finds all
that it waits for done, wherever in it the waits stand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import islpy as isl

from ..ir.expr import Node, Var
from ..ir.loop_reads import chunked_reads
from ..ir.plan import Chunk, Nest, NestAxis, nest_exprs
from ..ir.program import GridAxis, PlacedCall, Program
from ..ir.tensor import Point, Region, Slice
from ..ir.tile import SubAxis
from ..ir.walk import free_vars, substitute
from .access import MARK, accesses, is_header, nodes
from .deps import Dependence, element_map
from .sets.space import Scope, Side, task_domain


@dataclass(frozen=True)
class Operand:
    """A chunked read operand: the chunk node, the loop, and the slices taken in it."""

    node: PlacedCall
    chunk: Chunk
    region: Region
    slices: tuple[tuple[SubAxis, ...], ...]


def base_name(node: str) -> str:
    """The call that a chunk node belongs to; other names stay as they are."""
    return node.split(MARK)[0]


def is_chunk(node: PlacedCall) -> bool:
    return MARK in node.call.name


def chunk_node(placed: PlacedCall, chunk: Chunk) -> PlacedCall:
    """The call with one more coordinate, the iteration; it touches nothing by itself."""
    var = f"v{chunk.var}"
    while var in placed.vars:
        var += "_"
    call = replace(
        placed.call, name=f"{placed.call.name}{MARK}{chunk.var}",
        grid=(*placed.call.grid, GridAxis(var, chunk.extent)), reads=(), accumulates=(), writes=(),
    )
    return replace(placed, call=call)


def renamed(nests: tuple[Nest, ...], old: str, new: str) -> tuple[Nest, ...]:
    """Nests with one variable for another: the loop's value and the coordinate of a chunk node."""
    at: dict[str, Node] = {old: Var(new)}
    return tuple(
        Nest(
            tuple(NestAxis(a.var, substitute(a.lo, at), substitute(a.hi, at), a.step)
                  for a in n.axes),
            tuple(substitute(g, at) for g in n.guards),
            tuple(substitute(i, at) for i in n.index),
        )
        if any(old in free_vars(e) for e in nest_exprs(n)) else n
        for n in nests
    )


# ---- order ---------------------------------------------------------------------------------


def lift_sink(program: Program, relation: isl.Map, node: PlacedCall) -> isl.Map:
    """source -> task as source -> every iteration of the task."""
    wide = relation.add_dims(isl.dim_type.out, 1)
    return wide.intersect_range(task_domain(program, node))


def lift_source(program: Program, relation: isl.Map, node: PlacedCall) -> isl.Map:
    return lift_sink(program, relation.reverse(), node).reverse()


def whole(relation: isl.Map) -> isl.Map:
    """source -> iteration of a task as source -> task."""
    last = relation.dim(isl.dim_type.out) - 1
    return relation.project_out(isl.dim_type.out, last, 1)


def later_too(program: Program, relation: isl.Map, node: PlacedCall) -> isl.Map:
    """source -> iterations of a task that come after one which it leads to."""
    side, later = Side(node, "a_"), Side(node, "b_")
    scope = Scope(program)
    scope.domain(side)
    scope.domain(later)
    *same, last = zip(side.names, later.names, strict=True)
    scope.require(*(f"{a} = {b}" for a, b in same), f"{last[0]} < {last[1]}")
    return relation.apply_range(scope.map(side.names, later.names))


# ---- operands ------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def chunked(program: Program) -> dict[tuple[str, str], Operand]:
    """All chunked operands, by call and tensor."""
    found: dict[tuple[str, str], Operand] = {}
    for placed in (n for n in nodes(program) if not is_header(n)):
        for k, read in chunked_reads(placed.call).items():
            region, chunk = placed.call.reads[k], Chunk(read.loop.var, read.loop.extent)
            node = chunk_node(placed, chunk)
            found[placed.call.name, region.tensor] = Operand(node, chunk, region, read.slices)
    return found


def chunk_elements(program: Program, operand: Operand) -> isl.Map:
    """Iteration of a task -> elements of the operand that it reads."""
    side = Side(operand.node, "a_")
    names = tuple(f"e{k}" for k in range(len(operand.region.axes)))
    total = None
    for axes in operand.slices:
        scope = Scope(program)
        scope.domain(side)
        scope.elements(operand.region, side, names)
        _sliced(scope, side, operand, axes, names)
        found = scope.map(side.names, names)
        total = found if total is None else total.union(found)
    assert total is not None
    return total.coalesce()


def _sliced(
    scope: Scope, side: Side, operand: Operand, axes: tuple[SubAxis, ...], names: tuple[str, ...]
) -> None:
    """The elements lie in a slice of the region's tile."""
    bound = {f"%{operand.chunk.var}": side.names[-1]}
    kept = [(a, e) for a, e in zip(operand.region.axes, names, strict=True)
            if isinstance(a, Slice)]
    for axis, (of, e) in zip(axes, kept, strict=True):
        at = f"({e} - ({scope.text(of.start, side)}))"
        match axis:
            case Point(index):
                scope.require(f"{at} = {scope.text(index, side, bound)}")
            case Slice(start, stop):
                scope.require(f"{scope.text(start, side, bound)} <= {at}",
                              f"{at} < {scope.text(stop, side, bound)}")


# ---- dependences ---------------------------------------------------------------------------


def operand_of(program: Program, dep: Dependence) -> Operand | None:
    """The chunked operand that a dependence is about, if it is a read of known elements."""
    if dep.kind != "raw" or dep.accesses is not None or dep.data or dep.later:
        return None
    return chunked(program).get((dep.sink.call.name, dep.tensor))


def refined(program: Program, dep: Dependence, operand: Operand) -> Dependence:
    """The dependence by iterations: sources that write what an iteration reads."""
    wrote = None
    for a in accesses(program)[dep.tensor]:
        if a.writes and a.node.call.name == dep.source.call.name:
            m = element_map(program, a)
            wrote = m if wrote is None else wrote.union(m)
    assert wrote is not None
    meet = wrote.apply_range(chunk_elements(program, operand).reverse())
    relation = meet.intersect(lift_sink(program, dep.relation, operand.node)).coalesce()
    return replace(dep, sink=operand.node, relation=relation)


def worthwhile(program: Program, dep: Dependence, by_chunk: Dependence) -> bool:
    """True if the first iteration can run before some producer of a later one, and the iterations
    together need all that the task does."""
    if not whole(by_chunk.relation).is_equal(dep.relation):
        return False
    early = lift_sink(program, dep.relation, by_chunk.sink).subtract(by_chunk.relation)
    last = early.dim(isl.dim_type.out) - 1
    return not early.fix_val(isl.dim_type.out, last, isl.Val(0)).is_empty()


def split(program: Program, dep: Dependence, nodes: dict[str, PlacedCall]) -> list[Dependence]:
    """What must be ordered where some waits of the sink stand in a loop: the iterations that read
    a chunked operand, and the task for what no iteration reads."""
    operand = operand_of(program, dep)
    if operand is None or operand.node.call.name not in nodes:
        return [dep]
    by_chunk = refined(program, dep, operand)
    rest = dep.relation.subtract(whole(by_chunk.relation))
    return [by_chunk] if rest.is_empty() else [by_chunk, replace(dep, relation=rest)]
