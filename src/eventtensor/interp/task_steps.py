"""The steps of a task before it ends: its waits, and the reads of operands that a loop slices.

Each iteration reads its slice after its own waits. All else happens when the task ends, as in other
tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..ir.loop_reads import LoopRead, loop_reads
from ..ir.plan import Wait
from ..ir.program import Call
from ..ir.tensor import Point, Slice
from ..ir.tile import For, SubAxis
from ..ir.walk import evaluate
from .footprints import Footprint, Span


class WaitStep(NamedTuple):
    wait: Wait
    env: dict[str, int]


class ReadStep(NamedTuple):
    """The reads of one iteration. `env` binds the loop's value too."""

    reads: Mapping[int, LoopRead]
    env: dict[str, int]


Step = WaitStep | ReadStep


def task_steps(call: Call, waits: tuple[Wait, ...], env: dict[str, int]) -> list[Step]:
    """The waits before the body, then for each iteration of a loop its waits and its reads."""
    steps: list[Step] = [WaitStep(w, env) for w in waits if w.loop is None]
    if len(steps) == len(waits):
        return steps
    loops = {w.loop.var: w.loop for w in waits if w.loop is not None}
    for loop in (s.var for s in call.body.stmts if isinstance(s, For) and s.var in loops):
        reads = {k: r for k, r in loop_reads(call).items() if r.loop.var == loop}
        here = [w for w in waits if w.loop == loops[loop]]
        for v in range(evaluate(loops[loop].extent, env)):
            inside = {**env, f"%{loop}": v}
            steps += [*(WaitStep(w, inside) for w in here), ReadStep(reads, inside)]
    return steps


def steps_before_body(steps: list[Step]) -> int:
    """The number of steps before the body begins."""
    return sum(isinstance(s, WaitStep) and s.wait.loop is None for s in steps)


def operands_read_in_steps(call: Call, waits: tuple[Wait, ...]) -> list[int]:
    """The numbers of the arguments that ReadSteps read."""
    loops = {w.loop.var for w in waits if w.loop is not None}
    return [k for k, r in loop_reads(call).items() if r.loop.var in loops] if loops else []


def slice_footprint(
    f: Footprint, axes: tuple[SubAxis, ...], env: Mapping[str, int]
) -> tuple[Footprint, tuple[slice, ...]]:
    """The elements of a slice of a tile, and its key in the tile, with points as slices of 1."""
    spans: list[Span] = []
    key: list[slice] = []
    rest = iter(axes)
    for span in f.spans:
        if not span.has_axis:
            spans.append(span)
            continue
        at, first = _range(next(rest), span.extent, env), span.bounds[0]
        size = at.stop - at.start
        spans.append(Span(slice(first + at.start, first + at.stop), slice(0, size), size))
        key.append(at)
    return Footprint(f.tensor, tuple(spans)), tuple(key)


def _range(axis: SubAxis, size: int, env: Mapping[str, int]) -> slice:
    """The range, clipped to the tile. The body reports an index outside the tile."""
    match axis:
        case Point(index):
            lo = evaluate(index, env)
            hi = lo + 1
        case Slice(start, stop):
            lo, hi = evaluate(start, env), evaluate(stop, env)
    first = min(max(lo, 0), size)
    return slice(first, max(first, min(hi, size)))
