"""Read arguments of which each iteration of a loop takes one slice.

Such an operand can be streamed: each iteration takes one stage of the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

from .expr import Node, add
from .loop_reads import loop_reads
from .program import Call
from .tensor import Axis, Point, Region, Slice
from .tile import Arg, For, Let, SliceOf, SubAxis


@dataclass(frozen=True, slots=True)
class LoopOperand:
    """Value `id` is the slice that an iteration of `loop` takes. `region` is its region of the
    tensor, over the loop's value `%var`; `sub_axes` are its axes in the argument's tile."""

    loop: For
    id: int
    region: Region
    sub_axes: tuple[SubAxis, ...]


def loop_operand(call: Call, arg: int) -> LoopOperand | None:
    """The one slice of a read argument that is taken in a loop, if it is taken nowhere else."""
    found = loop_reads(call).get(arg)
    if found is None or len(found.slices) != 1:
        return None
    ids = {s.id for s in call.body.stmts if isinstance(s, Let) and s.op == Arg(arg)}
    taken = [s for s in found.loop.body if isinstance(s, Let) and isinstance(s.op, SliceOf)
             and s.op.x in ids]
    if len(taken) != 1:
        return None
    (axes,) = found.slices
    return LoopOperand(found.loop, taken[0].id, _slice_region(call.regions[arg], axes), axes)


def _slice_region(region: Region, sub_axes: tuple[SubAxis, ...]) -> Region:
    """A part of a region: its tile's axes are the region's slices, in order."""
    rest = iter(sub_axes)
    return Region(
        region.tensor,
        tuple(a if isinstance(a, Point) else _shift_axis(a, next(rest)) for a in region.axes),
    )


def _shift_axis(axis: Axis, by: SubAxis) -> Axis:
    assert isinstance(axis, Slice)
    start: Node = axis.start
    if isinstance(by, Point):
        return Point(add(start, by.index))
    return Slice(add(start, by.start), add(start, by.stop))
