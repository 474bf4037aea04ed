"""What a run found, as values; `Report.raise_if_bad` words them as errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ..errors import DeadlockFound, EventTensorError, OverNotified, RaceFound, UninitialisedRead
from .tasks import Task

Cell = tuple[str, tuple[int, ...]]


class RaceKind(Enum):
    """By what the two tasks do, the earlier one in program order first."""

    uncovered_read = "uncovered-read"
    write_write = "write-write"
    write_after_read = "write-after-read"


@dataclass(frozen=True, slots=True)
class Race:
    """`first` comes before `second` in program order, both touch tensor[index], one writes it, and
    events do not make them run in that order (`reversed`: events make them run in the other)."""

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
    """A cell with the count that waiters expect and the notifies it got."""

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
    """All tasks that remained, each with the first cell that holds it back."""

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
    """`order` is the order of execution; `cells` the final value of each cell that was waited for
    or notified; `unneeded` pairs (task, producer) where the task waited for a producer whose
    regions do not conflict with its own."""

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
        """Pairs (task, producer): the task waited for a producer whose regions do not conflict
        with its own."""
        return self.find_unneeded()

    @property
    def waited_unneeded(self) -> int:
        return len(self.unneeded)

    def error(self) -> EventTensorError | None:
        """The nearest cause first: a wrong count also makes races, and a race an early read."""
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
