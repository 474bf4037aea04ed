"""The record of a traced launch, and its time line in Chrome's trace event format.

A worker is a track; tasks and waits are slices. runtime/chrome_trace.py adds edges between tasks.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .interface import Interface

Array = npt.NDArray[Any]
Json = dict[str, Any]


@dataclass(frozen=True)
class LaunchRecord:
    """One traced launch: records (codegen/abi.TRACE), the tensors that event maps read, and the
    number of tasks without a record, because the buffer was full."""

    dims: Mapping[str, int]
    records: Array
    arrays: Mapping[str, Array] = field(repr=False)
    lost: int = 0


def task_rows(known: Interface, launch: LaunchRecord) -> list[Json]:
    """The tasks, with the names of their call and coordinates. Times are in ns from the first
    claim."""
    first = int(launch.records["t_claim"].min()) if len(launch.records) else 0
    return [_task(known, r, first) for r in launch.records]


def _task(known: Interface, record: Any, first: int) -> Json:
    call = known.calls[int(record["call"])]
    coords = {v: int(c) for v, c in zip(call.vars, record["coords"], strict=False)}
    return {
        "call": call.name, "coords": coords, "worker": int(record["worker"]),
        "claim": int(record["t_claim"]) - first, "ready": int(record["t_ready"]) - first,
        "end": int(record["t_end"]) - first, "stalled": int(record["stalled"]),
    }


def timeline(
    known: Interface, launch: LaunchRecord, tasks: list[Json], edges: Iterable[Json] = ()
) -> Json:
    """The time line of a launch. Times are in microseconds."""
    workers = sorted({t["worker"] for t in tasks})
    events: list[Json] = [
        {"ph": "M", "pid": 0, "tid": w, "name": "thread_name", "args": {"name": f"worker {w}"}}
        for w in workers
    ]
    for t in tasks:
        events += _slices(t)
    events += edges
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {
        "program": known.name, "dims": dict(launch.dims), "lost": launch.lost}}


def write(line: Json, path: str | Path) -> None:
    """Write the trace. Warn if it lacks tasks."""
    lost = line["otherData"]["lost"]
    if lost:
        warnings.warn(f"the trace lacks {lost} tasks: its buffer was full", stacklevel=3)
    Path(path).write_text(json.dumps(line))


def _slices(t: Json) -> Iterator[Json]:
    base = {"ph": "X", "pid": 0, "tid": t["worker"]}
    label = f"{t['call']}({', '.join(str(c) for c in t['coords'].values())})"
    if t["ready"] > t["claim"]:
        yield {**base, "name": "wait", "cat": "wait", "args": {"task": label},
               "ts": us(t["claim"]), "dur": us(t["ready"] - t["claim"])}
    stalled = {"stalled us": us(t["stalled"])} if t["stalled"] else {}
    yield {**base, "name": label, "cat": t["call"], "args": {**t["coords"], **stalled},
           "ts": us(t["ready"]), "dur": us(t["end"] - t["ready"])}


def us(ns: int) -> float:
    return ns / 1000
