"""Chrome/Perfetto traces: a track per worker, slices for tasks and waits, a flow per event edge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..ir.plan import Notify, Plan, Wait, visit
from ..ir.walk import LoadFn
from .cpu import LaunchRecord

Json = dict[str, Any]
Cell = tuple[str, tuple[int, ...]]


def chrome_trace(plan: Plan, launch: LaunchRecord) -> Json:
    """The launch in Chrome's trace event format; times in microseconds from the first claim."""
    tasks = [_task(plan, r) for r in launch.records]
    first = min((t["claim"] for t in tasks), default=0)
    workers = sorted({t["worker"] for t in tasks})
    events: list[Json] = [
        {"ph": "M", "pid": 0, "tid": w, "name": "thread_name", "args": {"name": f"worker {w}"}}
        for w in workers
    ]
    for t in tasks:
        events += _slices(t, first)
    events += _flows(plan, launch, tasks, first)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {
        "program": plan.program.name, "dims": dict(launch.dims)}}


def write_trace(plan: Plan, launch: LaunchRecord, path: str | Path) -> None:
    Path(path).write_text(json.dumps(chrome_trace(plan, launch)))


def _task(plan: Plan, record: Any) -> Json:
    placed = plan.program.calls[int(record["call"])]
    coords = {v: int(c) for v, c in zip(placed.vars, record["coords"], strict=False)}
    return {
        "call": placed.call.name, "coords": coords, "worker": int(record["worker"]),
        "claim": int(record["t_claim"]), "ready": int(record["t_ready"]),
        "end": int(record["t_end"]),
    }


def _slices(t: Json, first: int) -> Iterator[Json]:
    base = {"ph": "X", "pid": 0, "tid": t["worker"]}
    label = f"{t['call']}({', '.join(str(c) for c in t['coords'].values())})"
    if t["ready"] > t["claim"]:
        yield {**base, "name": "wait", "cat": "wait", "args": {"task": label},
               "ts": _us(t["claim"] - first), "dur": _us(t["ready"] - t["claim"])}
    yield {**base, "name": label, "cat": t["call"], "args": dict(t["coords"]),
           "ts": _us(t["ready"] - first), "dur": _us(t["end"] - t["ready"])}


def _us(ns: int) -> float:
    return ns / 1000


def _flows(plan: Plan, launch: LaunchRecord, tasks: list[Json], first: int) -> Iterator[Json]:
    """From every notifier of a cell to every task that waits for it."""
    def load(name: str, index: tuple[int, ...]) -> int:
        return int(launch.arrays[name][index])

    notifiers: dict[Cell, list[Json]] = {}
    for t in tasks:
        for cell in _cells(plan.call(t["call"]).notifies, t, launch.dims, load):
            notifiers.setdefault(cell, []).append(t)
    number = 0
    for t in tasks:
        for cell in _cells(plan.call(t["call"]).waits, t, launch.dims, load):
            for source in notifiers.get(cell, []):
                number += 1
                name = f"{cell[0]}{list(cell[1])}"
                base = {"cat": "event", "name": name, "id": number, "pid": 0}
                # A start binds to the slice that is open at its time: just before the end.
                at = max(source["ready"], source["end"] - 1)
                yield {**base, "ph": "s", "tid": source["worker"], "ts": _us(at - first)}
                yield {**base, "ph": "f", "bp": "e", "tid": t["worker"],
                       "ts": _us(t["ready"] - first)}


def _cells(
    maps: tuple[Wait, ...] | tuple[Notify, ...], t: Json, dims: Mapping[str, int], load: LoadFn
) -> list[Cell]:
    env = {**dims, **t["coords"]}
    return [(m.event, index) for m in maps for nest in m.cells for index in visit(nest, env, load)]
