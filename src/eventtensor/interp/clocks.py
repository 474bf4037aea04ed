"""The log of a run, and vector clocks: for each task the bit set of tasks that events put before
it.

Order comes from cells alone, never from the order of this run. Clocks are computed after the run,
when the number of all notifies of each cell is known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from .footprints import Footprint
from .numbers import Array
from .run_report import Cell, Unwritten
from .tasks import Mode, Task

# A stage after all waits of a task.
DONE = 1 << 30


class Access(NamedTuple):
    """Elements that task `id` touches after the first `stage` of its waits. `round` is its call and
    loop iteration: the tiles of one round are concurrent."""

    id: int
    stage: int
    mode: Mode
    footprint: Footprint
    round: tuple[int, ...]


class WaitRecord(NamedTuple):
    """The cell and target of wait number `stage` of a task, satisfied or pending."""

    stage: int
    cell: Cell
    target: int


@dataclass(slots=True)
class RunLog:
    """Tasks and headers have numbers in order of creation. `parent` is the header that created a
    task; the task comes after its waits. `executed` is in order of execution."""

    tasks: list[Task] = field(default_factory=list)
    ranks: list[tuple[int, ...]] = field(default_factory=list)
    parent: list[int | None] = field(default_factory=list)
    waited: list[list[WaitRecord]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    notifiers: dict[Cell, list[int]] = field(default_factory=dict)
    executed: list[int] = field(default_factory=list)
    unwritten: list[Unwritten] = field(default_factory=list)

    def add(self, task: Task, rank: tuple[int, ...], parent: int | None) -> int:
        self.tasks.append(task)
        self.ranks.append(rank)
        self.parent.append(parent)
        self.waited.append([])
        return len(self.tasks) - 1


class Clocks:
    """The clocks of a finished log. Cells of `relaxed` events count but carry no order, as without
    release and acquire."""

    def __init__(self, log: RunLog, relaxed: Collection[str] = ()) -> None:
        self._log = log
        self._relaxed = frozenset(relaxed)
        self._final: dict[int, int] = {}
        self._cells: dict[tuple[Cell, int], int] = {}
        self._allowed: dict[tuple[int, int], int] = {}
        for id in log.executed:
            self._final[id] = self.before(id, DONE) | 1 << id

    def before(self, id: int, stage: int) -> int:
        """The tasks that have always ended when task `id` has done its first `stage` waits."""
        parent = self._log.parent[id]
        clock = 0 if parent is None else self._final[parent]
        for w in self._log.waited[id]:
            if w.stage < stage:
                clock |= self._clock_of_wait(w)
        return clock

    def allowed(self, id: int, stage: int) -> int:
        """`before`, and the task itself."""
        key = id, stage
        if key not in self._allowed:
            self._allowed[key] = self.before(id, stage) | 1 << id
        return self._allowed[key]

    def row(self, id: int, stage: int) -> Array:
        """`before` as one bool for each task."""
        return unpack(self.before(id, stage), len(self._log.tasks))

    def _clock_of_wait(self, w: WaitRecord) -> int:
        """The tasks that a satisfied wait puts before. If the cell gets more notifies than the
        target, any `target` of them may come first, so only tasks common to enough of them
        count."""
        if w.cell[0] in self._relaxed:
            return 0
        key = w.cell, w.target
        if key not in self._cells:
            notifiers = self._log.notifiers.get(w.cell, [])
            known = [self._final[n] for n in notifiers[: w.target]]
            spare = len(notifiers) - w.target
            self._cells[key] = reduce(or_, known, 0) if spare <= 0 else self._common(known, spare)
        return self._cells[key]

    def _common(self, clocks: list[int], spare: int) -> int:
        """The tasks in more than `spare` clocks, of which every choice of notifiers has one."""
        count = len(self._log.tasks)
        votes = np.zeros(count, np.int64)
        for clock in clocks:
            votes += unpack(clock, count)
        bits = np.packbits(votes > spare, bitorder="little").tobytes()
        return int.from_bytes(bits, "little")


def unpack(clock: int, count: int) -> Array:
    """A bit set as an array of bools."""
    data = np.frombuffer(clock.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(data, count=count, bitorder="little").astype(np.bool_)
