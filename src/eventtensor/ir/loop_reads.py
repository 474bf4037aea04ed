"""Read arguments that a body walks in chunks: touched only by slices inside one outermost loop, at
places that dims, coordinates and the loop's value decide. Such an argument may be waited for chunk
by chunk: what iteration v reads of it is known, and nothing is read before the loop.
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
class ChunkedRead:
    """The loop, and the slices of the argument's tile that an iteration reads."""

    loop: For
    slices: tuple[tuple[SubAxis, ...], ...]


def chunked_reads(call: Call) -> dict[int, ChunkedRead]:
    """The chunked arguments of a call, by number. A hand-tuned body may read when it likes."""
    if has_data_extent(call) or call.has_custom_body:
        return {}
    found = {k: _chunked(call.body, k) for k, r in enumerate(call.reads) if _in_place(call, r)}
    return {k: w for k, w in found.items() if w is not None}


def _in_place(call: Call, region: Region) -> bool:
    """True if the task reads the region where it lies, and nothing else of the tensor."""
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


def _chunked(body: Body, arg: int) -> ChunkedRead | None:
    ids = {s.id for s in body.stmts if isinstance(s, Let) and s.op == Arg(arg)}
    users = [s for s in body.stmts if any(ids & _taken(inner) for inner in all_stmts((s,)))]
    if len(users) != 1 or not isinstance(users[0], For) or not body.args[arg].type.shape:
        return None
    loop = users[0]
    slices: list[tuple[SubAxis, ...]] = []
    for s in all_stmts((loop,)):
        if not ids & _taken(s):
            continue
        if not (isinstance(s, Let) and isinstance(s.op, SliceOf)):
            return None
        slices.append(s.op.axes)
    places = [e for axes in slices for a in axes for e in axis_exprs(a)]
    known = all(_known(e, {f"%{loop.var}"}) for e in places) and _known(loop.extent, set())
    return ChunkedRead(loop, tuple(dict.fromkeys(slices))) if known else None


def _taken(s: Stmt) -> set[int]:
    """Values that a statement takes; those of the statements inside a loop are not its own."""
    match s:
        case Let(_, op, _):
            return set(operands(op))
        case For(_, _, carries, _):
            return {x for c in carries for x in (c.init, c.next)}
        case Store(_, _, value) | Accumulate(_, value):
            return {value}


def _known(e: Node, values: set[str]) -> bool:
    """True if only dims, coordinates and the given values of the body decide an expression."""
    computed = {v for v in free_vars(e) if v.startswith("%")}
    return computed <= values and not loads_of(e)
