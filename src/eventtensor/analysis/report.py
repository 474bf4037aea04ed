"""What the proof says: status, problems with witnesses, obligations. Only the driver raises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .. import errors


class Kind(Enum):
    """Causes of a failed proof, each with its error class."""

    uncovered_read = "uncovered-read"
    no_producer = "no-producer"
    count_high = "count-high"
    count_low = "count-low"
    out_of_range = "out-of-range"
    write_write = "write-write"
    write_after_read = "write-after-read"
    cycle = "cycle"
    unbounded_index = "unbounded-index"
    unequal_extents = "unequal-extents"
    unproved = "unproved"

    @property
    def error(self) -> type[errors.ProofError]:
        return _ERRORS[self]

    def __str__(self) -> str:
        return self.value


_ERRORS: dict[Kind, type[errors.ProofError]] = {
    Kind.uncovered_read: errors.UncoveredRead,
    Kind.no_producer: errors.NoProducer,
    Kind.count_high: errors.CountTooHigh,
    Kind.count_low: errors.CountTooLow,
    Kind.out_of_range: errors.IndexOutOfRange,
    Kind.write_write: errors.UnorderedWriters,
    Kind.write_after_read: errors.WriteAfterRead,
    Kind.cycle: errors.EventCycle,
    Kind.unbounded_index: errors.UnboundedIndex,
    Kind.unequal_extents: errors.UnequalExtents,
    Kind.unproved: errors.Unproved,
}


@dataclass(frozen=True)
class Task:
    """One tile: its call and all coordinates, loops first."""

    call: str
    coords: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.call}({', '.join(f'{n}={v}' for n, v in self.coords)})"


@dataclass(frozen=True)
class Witness:
    """The smallest case that fails: dims, the tasks, and the element or cell."""

    dims: tuple[tuple[str, int], ...]
    tasks: tuple[Task, ...] = ()
    tensor: str | None = None
    index: tuple[int, ...] | None = None
    event: str | None = None
    cell: tuple[int, ...] | None = None

    def __str__(self) -> str:
        parts = [f"{n} = {v}" for n, v in self.dims]
        parts += [str(t) for t in self.tasks]
        if self.tensor is not None:
            at = "" if self.index is None else str(list(self.index))
            parts.append(f"{self.tensor}{at}")
        if self.event is not None:
            parts.append(f"{self.event}{list(self.cell or ())}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Problem:
    kind: Kind
    message: str
    place: str
    hint: str
    witness: Witness | None = None

    @property
    def code(self) -> str:
        return self.kind.error.code

    def error(self) -> errors.ProofError:
        return self.kind.error(str(self.message), place=self.place, hint=self.hint)

    def __str__(self) -> str:
        seen = f"\n  witness: {self.witness}" if self.witness else ""
        head = f"{self.code} {self.kind}: {self.message}\n  at {self.place}"
        return f"{head}{seen}\n  hint: {self.hint}"


@dataclass(frozen=True)
class Obligation:
    """Something that run-time data must satisfy; `debug=True` checks it."""

    what: str
    place: str

    def __str__(self) -> str:
        return f"{self.what} (at {self.place})"


@dataclass(frozen=True)
class CheckReport:
    status: str
    problems: tuple[Problem, ...]
    obligations: tuple[Obligation, ...]

    @property
    def ok(self) -> bool:
        return self.status == "proved"

    def __str__(self) -> str:
        lines = [f"status: {self.status}"]
        lines += [str(p) for p in self.problems]
        lines += [f"obligation: {o}" for o in self.obligations]
        return "\n".join(lines)


def make_report(problems: list[Problem], obligations: list[Obligation]) -> CheckReport:
    if not problems:
        status = "proved"
    elif all(p.kind is Kind.unproved for p in problems):
        status = "unproved"
    else:
        status = "refuted"
    return CheckReport(status, tuple(problems), tuple(dict.fromkeys(obligations)))
