"""A failed launch in words: the device's report as an error with task, cell, expected, seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..codegen import abi
from ..errors import BoundViolated, CountMismatch, EventTensorError, OutOfRange, StuckWait
from ..ir.plan import Plan
from ..ir.walk import evaluate


def failure(plan: Plan, dims: Mapping[str, int], report: Any) -> EventTensorError:
    """`report` is one record of codegen/abi.REPORT with a code other than 0."""
    code, what, place = (int(report[k]) for k in ("code", "what", "place"))
    expected, seen, worker = (int(report[k]) for k in ("expected", "seen", "worker"))
    task, where = _task(plan, report)
    at = ", ".join(f"{k} = {v}" for k, v in sorted(dims.items()))
    tail = f"   ({at})" if at else ""
    match code:
        case abi.STUCK_WAIT:
            return StuckWait(
                f"worker {worker}: {task} waits for {_cell(plan, dims, what, place)}, "
                f"expected {expected}, seen {seen}{tail}",
                place=where,
            )
        case abi.STUCK_QUEUE:
            return StuckWait(
                f"worker {worker}: slot {place} of the queue after {task} stays empty, "
                f"expected a task, seen none{tail}",
                place=where,
            )
        case abi.COUNT_WRONG:
            return CountMismatch(
                f"{_cell(plan, dims, what, place)}, which {task} waits for, ended at {seen}, "
                f"but its count is {expected}{tail}",
                place=where,
            )
        case abi.LOAD_BOUND:
            tensor = plan.program.tensors[what]
            index = _unravel(place, [evaluate(s, dims) for s in tensor.shape])
            return BoundViolated(
                f"{task} reads {tensor.name}{index} = {seen}, beyond its bound {expected}{tail}",
                place=where,
            )
        case abi.CELL_RANGE:
            return OutOfRange(
                f"{task} uses index {seen} on axis {place} of event '{plan.events[what].name}', "
                f"whose extent is {expected}{tail}",
                place=where,
            )
        case abi.GATHER_RANGE:
            return OutOfRange(
                f"the body of {task} uses index {seen} on a tile axis of extent {expected}{tail}",
                place=where,
            )
        case _:
            axis = "" if place < 0 else f" axis {place} of"
            return OutOfRange(
                f"{task} uses index {seen} on{axis} '{plan.program.tensors[what].name}', "
                f"whose extent is {expected}{tail}",
                place=where,
            )


def _task(plan: Plan, report: Any) -> tuple[str, str]:
    """Text of the task (or of its grid, before it has coordinates), and its place."""
    number = int(report["call"])
    if number < 0:
        return "no task yet", "<unknown>"
    placed = plan.program.calls[number]
    coords = [int(c) for c in report["coords"][: len(placed.vars)]]
    if any(c < 0 for c in coords):
        return f"the grid of {placed.call.name}", placed.call.place
    return f"{placed.call.name}{tuple_text(coords)}", placed.call.place


def tuple_text(coords: list[int]) -> str:
    return f"({', '.join(str(c) for c in coords)})"


def _cell(plan: Plan, dims: Mapping[str, int], event: int, place: int) -> str:
    e = plan.events[event]
    return e.name + _unravel(place, [evaluate(s, dims) for s in e.shape])


def _unravel(place: int, shape: list[int]) -> str:
    if not shape:
        return "[]"
    index = np.unravel_index(place, [max(1, s) for s in shape])
    return str([int(i) for i in index])
