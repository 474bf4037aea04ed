"""Chooses the next of the ready tasks.

Any choice is legal, because events alone decide which tasks are ready.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from .run_report import Cell
from .tasks import Task

Key = tuple[float, ...]
Hold = Task | Callable[[Task], bool]


class Order(Enum):
    """random: by seed. adversarial: tasks for which others wait come last. program: program
    order."""

    random = "random"
    adversarial = "adversarial"
    program = "program"


@dataclass(slots=True)
class ReadyQueue:
    """The ready tasks. A held task runs only when no other is ready."""

    order: Order
    seed: int
    hold: Hold | None
    scores: Mapping[int, int] = field(default_factory=dict)
    _heap: list[tuple[bool, Key, int]] = field(default_factory=list)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def push(self, id: int, task: Task, rank: tuple[int, ...]) -> None:
        heapq.heappush(self._heap, (self._held(task), self._key(id, rank), id))

    def pop(self) -> int | None:
        return heapq.heappop(self._heap)[2] if self._heap else None

    def _held(self, task: Task) -> bool:
        match self.hold:
            case None:
                return False
            case Task():
                return task == self.hold
            case _:
                return self.hold(task)

    def _key(self, id: int, rank: tuple[int, ...]) -> Key:
        match self.order:
            case Order.random:
                return (self._random.random(),)
            case Order.adversarial:
                return (self.scores.get(id, 0), *(-r for r in rank))
            case Order.program:
                return rank
            case _:
                assert_never(self.order)


def dependents(
    ids: Iterable[int],
    waits: Mapping[int, Iterable[Cell]],
    notifies: Mapping[int, Iterable[Cell]],
) -> dict[int, int]:
    """The number of tasks that wait for each task, directly or not. `ids` are in program order,
    along which all edges go. Waits that run-time data decides are ignored."""
    waiting: dict[Cell, int] = {}
    scores: dict[int, int] = {}
    for id in reversed(list(ids)):
        mine = 0
        for cell in notifies.get(id, ()):
            mine |= waiting.get(cell, 0)
        scores[id] = mine.bit_count()
        for cell in waits.get(id, ()):
            waiting[cell] = waiting.get(cell, 0) | mine | 1 << id
    return scores
