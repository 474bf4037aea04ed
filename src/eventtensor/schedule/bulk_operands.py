"""Operands that one bulk copy can bring: contiguous blocks of scratch, in multiples of 16 bytes."""

from __future__ import annotations

from ..ir.expr import Const
from ..ir.layout import BULK_ALIGN, bulk_aligned, layout_of
from ..ir.program import PlacedCall, Program
from ..ir.tensor import Region, Role, Rows
from ..ir.tile import (
    Arg,
    Body,
    Broadcast,
    Cast,
    Let,
    MatMul,
    Reshape,
    SliceOf,
    Transpose,
    all_stmts,
)


def bulk_operand(program: Program, p: PlacedCall, made: set[str]) -> tuple[int | None, str]:
    """The first read argument among the tensors `made` that can be copied; else why none can."""
    why = "no operand of its producers is read"
    for k, region in enumerate(p.call.reads):
        if region.tensor in made:
            why = _refusal(program, region)
            if not why:
                return k, ""
    return None, why


def _refusal(program: Program, region: Region) -> str:
    tensor = program.tensor(region.tensor)
    if tensor.role is not Role.scratch:
        return f"{tensor.name} is no scratch: its address may have any alignment"
    if region.pad is not None or any(isinstance(a, Rows) for a in region.axes):
        return f"{tensor.name} is read padded or by gathered rows"
    layout = layout_of(region, tensor)
    if layout is None or layout.rows != Const(1):
        return f"the rows read of {tensor.name} lie apart"
    if not bulk_aligned(layout, tensor):
        return f"what is read of {tensor.name} is not always a multiple of {BULK_ALIGN} bytes"
    return ""


def feeds_product(body: Body, arg: int) -> bool:
    """True if a matrix product takes the argument, or a part or other view of it."""
    views: set[int] = set()
    for s in all_stmts(body.stmts):
        if not isinstance(s, Let):
            continue
        match s.op:
            case Arg(k) if k == arg:
                views.add(s.id)
            case Transpose(x, _) | Reshape(x) | SliceOf(x, _) | Cast(x, _) | Broadcast(x) if (
                x in views
            ):
                views.add(s.id)
            case MatMul(a, b) if views & {a, b}:
                return True
            case _:
                pass
    return False
