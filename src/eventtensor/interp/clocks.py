"""The log of a run, and the vector clocks computed from it: for each task the set of tasks that
events put before it, as a bit set. Order comes from cells only, never from how this run went.

Clocks are made after the run, when it is known how many notifies each cell got in all.
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

# A stage that is behind all waits of a task.
DONE = 1 << 30


class Access(NamedTuple):
    """Elements touched by task `id` after it had done the first `stage` of its waits. `round` names
    its call and loop iteration: the tiles of one round are concurrent."""

    id: int
    stage: int
    mode: Mode
    footprint: Footprint
    round: tuple[int, ...]


class Waited(NamedTuple):
    """Cell and target of one satisfied (or pending) wait, the `stage`-th of its task."""

    stage: int
    cell: Cell
    target: int


@dataclass(slots=True)
class Trace:
    """Tasks (and headers) are numbered as they become known. `parent` is the header that created a
    task, whose waits every task of its grid is behind. `executed` is in order of execution."""

    tasks: list[Task] = field(default_factory=list)
    ranks: list[tuple[int, ...]] = field(default_factory=list)
    parent: list[int | None] = field(default_factory=list)
    waited: list[list[Waited]] = field(default_factory=list)
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
    """Answers `before(id, stage)`; built once the whole trace is known. Cells of `relaxed` events
    count, but carry no order, as if they were published without release and acquire."""

    def __init__(self, trace: Trace, relaxed: Collection[str] = ()) -> None:
        self._trace = trace
        self._relaxed = frozenset(relaxed)
        self._final: dict[int, int] = {}
        self._cells: dict[tuple[Cell, int], int] = {}
        self._allowed: dict[tuple[int, int], int] = {}
        for id in trace.executed:
            self._final[id] = self.before(id, DONE) | 1 << id

    def before(self, id: int, stage: int) -> int:
        """The tasks that surely have ended when task `id` has done its first `stage` waits."""
        parent = self._trace.parent[id]
        clock = 0 if parent is None else self._final[parent]
        for w in self._trace.waited[id]:
            if w.stage < stage:
                clock |= self._joined(w)
        return clock

    def allowed(self, id: int, stage: int) -> int:
        """`before`, and the task itself."""
        key = id, stage
        if key not in self._allowed:
            self._allowed[key] = self.before(id, stage) | 1 << id
        return self._allowed[key]

    def row(self, id: int, stage: int) -> Array:
        """`before` as one bool for each task."""
        return unpack(self.before(id, stage), len(self._trace.tasks))

    def _joined(self, w: Waited) -> int:
        """What a satisfied wait tells. If the cell gets more notifies than the target, any `target`
        of them may have come first: only what enough of them have in common is sure."""
        if w.cell[0] in self._relaxed:
            return 0
        key = w.cell, w.target
        if key not in self._cells:
            notifiers = self._trace.notifiers.get(w.cell, [])
            known = [self._final[n] for n in notifiers[: w.target]]
            spare = len(notifiers) - w.target
            self._cells[key] = reduce(or_, known, 0) if spare <= 0 else self._common(known, spare)
        return self._cells[key]

    def _common(self, clocks: list[int], spare: int) -> int:
        """Tasks in more than `spare` of the clocks: every choice of notifiers has one of those."""
        count = len(self._trace.tasks)
        votes = np.zeros(count, np.int64)
        for clock in clocks:
            votes += unpack(clock, count)
        bits = np.packbits(votes > spare, bitorder="little").tobytes()
        return int.from_bytes(bits, "little")


def unpack(clock: int, count: int) -> Array:
    """A bit set as an array of bools."""
    data = np.frombuffer(clock.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(data, count=count, bitorder="little").astype(np.bool_)
