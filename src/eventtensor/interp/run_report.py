"""The result of a run, as values: races, deadlock, wrong counts, unwritten reads.

`Report.raise_if_bad` turns them into errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ..errors import DeadlockFound, EventTensorError, OverNotified, RaceFound, UninitialisedRead
from .tasks import Task

Cell = tuple[str, tuple[int, ...]]


class RaceKind(Enum):
    """What the two tasks do, the earlier one in program order first."""

    uncovered_read = "uncovered-read"
    write_write = "write-write"
    write_after_read = "write-after-read"


@dataclass(frozen=True, slots=True)
class Race:
    """`first` precedes `second` in program order. Both touch tensor[index], and one writes it.
    Events do not order them so; with `reversed` they order them the other way."""

    kind: RaceKind
    first: Task
    second: Task
    tensor: str
    index: tuple[int, ...]
    reversed: bool = False

    def __str__(self) -> str:
        does = "reads" if self.kind is RaceKind.uncovered_read else "writes"
        did = "read" if self.kind is RaceKind.write_after_read else "written"
        how = "is made to run before it" if self.reversed else "does not wait for it"
        return (
            f"{self.kind.value}: {self.second} {does} {self.tensor}{list(self.index)}, {did} by "
            f"{self.first}, but {how}"
        )


@dataclass(frozen=True, slots=True)
class CellState:
    """A cell, the count that waiters expect, and the notifies that it got."""

    event: str
    index: tuple[int, ...]
    expected: int
    seen: int

    def __str__(self) -> str:
        return f"{self.event}{list(self.index)} expects {self.expected} and has {self.seen}"


@dataclass(frozen=True, slots=True)
class Stuck:
    task: Task
    cell: CellState

    def __str__(self) -> str:
        return f"{self.task} waits: {self.cell}"


@dataclass(frozen=True, slots=True)
class Deadlock:
    """All unfinished tasks, each with the first cell for which it waits."""

    stuck: tuple[Stuck, ...]


@dataclass(frozen=True, slots=True)
class Unwritten:
    """`task` read an element that no task had written."""

    task: Task
    tensor: str
    index: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.task} reads {self.tensor}{list(self.index)}, which nothing has written yet"


@dataclass(frozen=True)
class Report:
    """`order` is the order of execution. `cells` has the final value of each cell that tasks waited
    for or notified."""

    order: tuple[Task, ...]
    races: tuple[Race, ...]
    deadlock: Deadlock | None
    over_notified: tuple[CellState, ...]
    uninitialised: tuple[Unwritten, ...]
    cells: Mapping[Cell, int]
    find_unneeded: Callable[[], tuple[tuple[Task, Task], ...]]
    place: str

    @property
    def ok(self) -> bool:
        bad = self.races or self.deadlock or self.over_notified or self.uninitialised
        return not bad

    @cached_property
    def unneeded(self) -> tuple[tuple[Task, Task], ...]:
        """Pairs (task, producer) where the task waited for a producer whose regions do not conflict
        with its own."""
        return self.find_unneeded()

    @property
    def waited_unneeded(self) -> int:
        return len(self.unneeded)

    def error(self) -> EventTensorError | None:
        """The error of the first cause. A wrong count also gives races, and a race early reads."""
        if self.deadlock is not None:
            return DeadlockFound(_first(self.deadlock.stuck), place=self.place)
        if self.over_notified:
            return OverNotified(_first(self.over_notified), place=self.place)
        if self.races:
            return RaceFound(_first(self.races), place=self.place)
        if self.uninitialised:
            return UninitialisedRead(_first(self.uninitialised), place=self.place)
        return None

    def raise_if_bad(self) -> None:
        error = self.error()
        if error is not None:
            raise error


def _first(found: tuple[object, ...]) -> str:
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0]}{more}"
