"""The error of a failed launch: the device's report with task, cell, expected and seen values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..codegen import abi
from ..errors import (
    BoundViolated,
    CountMismatch,
    EventTensorError,
    OutOfMemory,
    OutOfRange,
    StuckWait,
)
from ..ir.expr import Node
from ..ir.walk import evaluate
from .interface import Interface, interface_of

if TYPE_CHECKING:
    from ..ir.plan import Plan


def launch_error(plan: Plan | Interface, dims: Mapping[str, int], report: Any) -> EventTensorError:
    """The error of `report`, one record of codegen/abi.REPORT with a code other than 0."""
    known = interface_of(plan)
    task, where = _task(known, report)
    cause, text = _cause_and_text(known, dims, report, task)
    at = ", ".join(f"{k} = {v}" for k, v in sorted(dims.items()))
    return cause(f"{text}   ({at})" if at else text, place=where)


def _cause_and_text(
    known: Interface, dims: Mapping[str, int], report: Any, task: str
) -> tuple[type[EventTensorError], str]:
    code, what, place = (int(report[k]) for k in ("code", "what", "place"))
    expected, seen, worker = (int(report[k]) for k in ("expected", "seen", "worker"))

    def cell() -> str:
        return known.events[what].name + _unravel(place, known.events[what].shape, dims)

    def element() -> str:
        return known.tensors[what].name + _unravel(place, known.tensors[what].shape, dims)

    match code:
        case abi.STUCK_WAIT:
            return StuckWait, (
                f"worker {worker}: {task} waits for {cell()}, expected {expected}, seen {seen}"
            )
        case abi.STUCK_QUEUE:
            return StuckWait, (
                f"worker {worker}: slot {place} of the queue after {task} stays empty, "
                "expected a task, seen none"
            )
        case abi.STUCK_FLAG:
            return StuckWait, (
                f"worker {worker}: {task} waits for {element()}, whose flag has epoch {seen} "
                f"and not {expected}"
            )
        case abi.COUNT_WRONG:
            return CountMismatch, (
                f"{cell()}, which {task} waits for, ended at {seen}, but its count is {expected}"
            )
        case abi.NO_MEMORY:
            wanted = f"{task} asks for {seen} bytes of temporaries" if what else (
                f"the cells of a launch take {seen} bytes")
            return OutOfMemory, f"{wanted}, which memory cannot hold"
        case abi.LOAD_BOUND:
            return BoundViolated, f"{task} reads {element()} = {seen}, beyond its bound {expected}"
        case abi.CELL_RANGE:
            on = f"axis {place} of event '{known.events[what].name}'"
        case abi.GATHER_RANGE:
            task, on = f"the body of {task}", "a tile axis"
        case _:
            axis = "" if place < 0 else f"axis {place} of "
            on = f"{axis}'{known.tensors[what].name}'"
    return OutOfRange, f"{task} uses index {seen} on {on}, whose extent is {expected}"


def _task(known: Interface, report: Any) -> tuple[str, str]:
    """The text of the task, or of its grid before it has coordinates, and its place."""
    number = int(report["call"])
    if number < 0:
        return "no task yet", "<unknown>"
    call = known.calls[number]
    coords = [int(c) for c in report["coords"][: len(call.vars)]]
    if any(c < 0 for c in coords):
        return f"the grid of {call.name}", call.place
    return f"{call.name}{tuple_text(coords)}", call.place


def tuple_text(coords: list[int]) -> str:
    return f"({', '.join(str(c) for c in coords)})"


def _unravel(place: int, shape: tuple[Node, ...], dims: Mapping[str, int]) -> str:
    """The index of a row-major number, as text."""
    if not shape:
        return "[]"
    index = np.unravel_index(place, [max(1, evaluate(s, dims)) for s in shape])
    return str([int(i) for i in index])
