"""Chrome and Perfetto traces of a plan: the time line of a launch, and a flow for each event
edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..ir.plan import Nest, Plan, nest_exprs, visit
from ..ir.walk import LoadFn, loads_of
from .interface import interface_of
from .launch_record import Json, LaunchRecord, task_rows, timeline, us, write

Cell = tuple[str, tuple[int, ...]]
Maps = list[tuple[str, tuple[Nest, ...]]]  # an event, and the cells of it that a task visits


def chrome_trace(plan: Plan, launch: LaunchRecord) -> Json:
    """The launch in Chrome's trace event format; times in microseconds from the first claim."""
    known = interface_of(plan)
    tasks = task_rows(known, launch)
    return timeline(known, launch, tasks, _flows(plan, launch, tasks))


def write_trace(plan: Plan, launch: LaunchRecord, path: str | Path) -> None:
    write(chrome_trace(plan, launch), path)


def tensors_of_maps(plan: Plan) -> set[str]:
    """Tensors whose run-time values decide which cells a task waits for or notifies."""
    maps = [m for c in plan.calls for m in (*_waits(plan, c.call), *_notifies(plan, c.call))]
    exprs = [e for _, cells in maps for nest in cells for e in nest_exprs(nest)]
    return {load.tensor for load in loads_of(*exprs)}


def _flows(plan: Plan, launch: LaunchRecord, tasks: list[Json]) -> Iterator[Json]:
    """A flow from every notifier of a cell to every task that waits for it."""

    def load(name: str, index: tuple[int, ...]) -> int:
        return int(launch.arrays[name][index])

    notifiers: dict[Cell, list[Json]] = {}
    for t in tasks:
        for cell in _cells(_notifies(plan, t["call"]), t, launch.dims, load):
            notifiers.setdefault(cell, []).append(t)
    number = 0
    for t in tasks:
        for cell in _cells(_waits(plan, t["call"]), t, launch.dims, load):
            for source in notifiers.get(cell, []):
                number += 1
                name = f"{cell[0]}{list(cell[1])}"
                base = {"cat": "event", "name": name, "id": number, "pid": 0}
                # A flow starts in the slice that is open at its time: just before the end.
                at = max(source["ready"], source["end"] - 1)
                yield {**base, "ph": "s", "tid": source["worker"], "ts": us(at)}
                yield {**base, "ph": "f", "bp": "e", "tid": t["worker"], "ts": us(t["ready"])}


def _waits(plan: Plan, call: str) -> Maps:
    return [(w.event, w.all_cells()) for w in plan.call(call).waits]


def _notifies(plan: Plan, call: str) -> Maps:
    return [(n.event, n.cells) for n in plan.call(call).notifies]


def _cells(maps: Maps, t: Json, dims: Mapping[str, int], load: LoadFn) -> list[Cell]:
    """The cells in order, each once. Several iterations of a task may wait for one cell."""
    env = {**dims, **t["coords"]}
    found = (
        (event, index) for event, nests in maps for n in nests for index in visit(n, env, load)
    )
    return list(dict.fromkeys(found))
