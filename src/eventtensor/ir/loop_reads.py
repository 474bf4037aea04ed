"""Read arguments that a body slices in one outermost loop, and reads nowhere else.

Dims, coordinates and the loop's value decide the slices, so it is known what iteration v reads. A
task may then wait for the argument iteration by iteration (analysis/iteration_nodes.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from .expr import Node
from .ops import body_exprs, operands
from .program import Call, has_data_extent
from .tensor import Point, Region, Slice, axis_exprs, region_exprs
from .tile import (
    Accumulate,
    Arg,
    Body,
    For,
    Let,
    SliceOf,
    Stmt,
    Store,
    SubAxis,
    all_stmts,
)
from .walk import free_vars, loads_of


@dataclass(frozen=True, slots=True)
class LoopRead:
    """The loop, and the slices of the argument's tile that an iteration reads."""

    loop: For
    slices: tuple[tuple[SubAxis, ...], ...]


def loop_reads(call: Call) -> dict[int, LoopRead]:
    """Such arguments of a call, by number. A custom body has none: it may read at any time."""
    if has_data_extent(call) or call.has_custom_body:
        return {}
    found = {
        k: _loop_read(call.body, k) for k, r in enumerate(call.reads) if _is_read_in_place(call, r)
    }
    return {k: w for k, w in found.items() if w is not None}


def _is_read_in_place(call: Call, region: Region) -> bool:
    """True if the task reads the region in place, and nothing else of the tensor."""
    edges = (*call.regions, *(call.waits or ()), *(call.notifies or ()))
    exprs = [e for r in edges for e in region_exprs(r)]
    loaded = {ld.tensor for ld in loads_of(*exprs, *body_exprs(call.body))}
    return (
        region.pad is None
        and all(isinstance(a, Point | Slice) for a in region.axes)
        and not loads_of(*region_exprs(region))
        and [r.tensor for r in call.regions].count(region.tensor) == 1
        and region.tensor not in loaded
    )


def _loop_read(body: Body, arg: int) -> LoopRead | None:
    ids = {s.id for s in body.stmts if isinstance(s, Let) and s.op == Arg(arg)}
    users = [s for s in body.stmts if any(ids & _operands(inner) for inner in all_stmts((s,)))]
    if len(users) != 1 or not isinstance(users[0], For) or not body.args[arg].type.shape:
        return None
    loop = users[0]
    slices: list[tuple[SubAxis, ...]] = []
    for s in all_stmts((loop,)):
        if not ids & _operands(s):
            continue
        if not (isinstance(s, Let) and isinstance(s.op, SliceOf)):
            return None
        slices.append(s.op.axes)
    exprs = [e for axes in slices for a in axes for e in axis_exprs(a)]
    known = all(_is_known(e, {f"%{loop.var}"}) for e in exprs) and _is_known(loop.extent, set())
    return LoopRead(loop, tuple(dict.fromkeys(slices))) if known else None


def _operands(s: Stmt) -> set[int]:
    """The values that a statement takes, without those of statements inside a loop."""
    match s:
        case Let(_, op, _):
            return set(operands(op))
        case For(_, _, carries, _):
            return {x for c in carries for x in (c.init, c.next)}
        case Store(_, _, value) | Accumulate(_, value):
            return {value}


def _is_known(e: Node, values: set[str]) -> bool:
    """True if only dims, coordinates and the given values of the body decide an expression."""
    computed = {v for v in free_vars(e) if v.startswith("%")}
    return computed <= values and not loads_of(e)
