"""The result of the proof: status, problems with witnesses, and obligations.

All are values. Only the driver (compiler.py) raises errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from .. import errors


class Kind(Enum):
    """Kinds of problems, each with its error class. A cause comes before its consequences: an index
    without a bound also gives races, and a wrong count gives unordered reads."""

    contradiction = "contradiction"
    unbounded_index = "unbounded-index"
    out_of_range = "out-of-range"
    negative_extent = "negative-extent"
    too_few = "too-few-elements"
    unequal_extents = "unequal-extents"
    unassigned = "unassigned"
    written_twice = "written-twice"
    cycle = "cycle"
    count_high = "count-high"
    count_low = "count-low"
    no_producer = "no-producer"
    write_write = "write-write"
    uncovered_read = "uncovered-read"
    write_after_read = "write-after-read"
    unwritten = "unwritten"
    unproved = "unproved"

    @property
    def error(self) -> type[errors.ProofError]:
        return _ERRORS[self]

    def __str__(self) -> str:
        return self.value


_ERRORS: dict[Kind, type[errors.ProofError]] = {
    Kind.contradiction: errors.ContradictoryFacts,
    Kind.uncovered_read: errors.UncoveredRead,
    Kind.no_producer: errors.NoProducer,
    Kind.count_high: errors.CountTooHigh,
    Kind.count_low: errors.CountTooLow,
    Kind.out_of_range: errors.IndexOutOfRange,
    Kind.write_write: errors.UnorderedWriters,
    Kind.write_after_read: errors.WriteAfterRead,
    Kind.cycle: errors.EventCycle,
    Kind.unbounded_index: errors.UnboundedIndex,
    Kind.negative_extent: errors.NegativeExtent,
    Kind.too_few: errors.TooFewElements,
    Kind.unequal_extents: errors.UnequalExtents,
    Kind.unassigned: errors.Unassigned,
    Kind.unwritten: errors.Unwritten,
    Kind.written_twice: errors.WrittenTwice,
    Kind.unproved: errors.Unproved,
}


@dataclass(frozen=True)
class Task:
    """One task: its call and all coordinates, those of loops first."""

    call: str
    coords: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.call}({', '.join(f'{n}={v}' for n, v in self.coords)})"


@dataclass(frozen=True)
class Witness:
    """The smallest case that fails: dims, tasks, and the element or cell."""

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

    @property
    def line(self) -> str:
        """The problem in one line, without witness and hint."""
        return f"{self.code} {self.kind}: {self.message} (at {self.place})"

    def __str__(self) -> str:
        seen = f"\n  witness: {self.witness}" if self.witness else ""
        head = f"{self.code} {self.kind}: {self.message}\n  at {self.place}"
        return f"{head}{seen}\n  hint: {self.hint}"


@dataclass(frozen=True)
class Obligation:
    """A condition that run-time data must satisfy. `kernel.validate(**arrays)` and debug builds
    check it. It concerns the counts of an `event`, elements of a `tensor` that tasks read, or
    indices that a `call` computes. Otherwise it is a declared fact."""

    what: str
    place: str
    hint: str = "correct the data; kernel.validate(**arrays) tells where it fails"
    event: str | None = None
    tensor: str | None = None
    call: str | None = None

    def __str__(self) -> str:
        return f"{self.what} (at {self.place})\n  hint: {self.hint}"


class Status(StrEnum):
    """`conditional`: proved for all run-time data that satisfies the listed obligations."""

    proved = "proved"
    conditional = "conditional"
    refuted = "refuted"
    unproved = "unproved"


@dataclass(frozen=True)
class CheckReport:
    status: Status
    problems: tuple[Problem, ...]
    obligations: tuple[Obligation, ...]

    @property
    def ok(self) -> bool:
        """True if the program is proved for all data that satisfies the obligations."""
        return self.status in (Status.proved, Status.conditional)

    def error(self) -> errors.ProofError:
        """All problems as one error: the first in full, the others in a line each."""
        first, *others = self.problems
        return first.kind.error(
            first.message, place=first.place, hint=first.hint, others=[p.line for p in others])

    def __str__(self) -> str:
        lines = [f"status: {self.status}"]
        lines += [str(p) for p in self.problems]
        lines += [f"obligation: {o}" for o in self.obligations]
        return "\n".join(lines)


def make_report(problems: list[Problem], obligations: list[Obligation]) -> CheckReport:
    """The report. Causes come before their consequences."""
    owed = tuple(dict.fromkeys(obligations))
    rank = {kind: k for k, kind in enumerate(Kind)}
    ordered = tuple(sorted(problems, key=lambda p: rank[p.kind]))
    if not problems:
        return CheckReport(Status.conditional if owed else Status.proved, (), owed)
    unproved = all(p.kind is Kind.unproved for p in problems)
    return CheckReport(Status.unproved if unproved else Status.refuted, ordered, owed)
