"""Compares what the proof reports with the ground truth, and replays witnesses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eventtensor.analysis.check_report import CheckReport, Kind, Problem
from eventtensor.analysis.derive import Derived
from eventtensor.compiler import State
from eventtensor.errors import OutOfRange
from eventtensor.interp import Order, Report, Task
from tests.support.backends import make_arrays, plan_with, run_interp
from tests.support.judge import Fault, faults_of
from tests.support.world import World

COUNTS = {"count-high", "count-low"}
RACES = {"uncovered-read", "write-write", "write-after-read"}
Signature = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Subject:
    """A program with the events under judgement, and dims to look at."""

    state: State
    derived: Derived
    dims: tuple[dict[str, int], ...]

    def truth(self) -> set[Fault]:
        return {f for d in self.dims for f in self.at(d)}

    def at(self, dims: dict[str, int]) -> set[Fault]:
        return faults_of(World(self.state.program, self.derived, dims))

    def replay(self, dims: dict[str, int]) -> Report:
        plan = plan_with(self.state, self.derived)
        arrays = make_arrays(self.state.program, dims)
        return run_interp(plan, dims, arrays, Order.random, 1, debug=False)[1]


def complaints(subject: Subject, report: CheckReport) -> Iterator[str]:
    """Where report and ground truth differ. At dims that brute force did not look at, the witness
    must show it the fault."""
    truth = subject.truth() or {
        f for p in report.problems if p.witness for f in subject.at(dict(p.witness.dims))
    }
    if not truth:
        if not report.ok:
            yield f"a false alarm:\n{report}"
        return
    if report.status != "refuted":
        yield f"{report.status}, but brute force finds {_some(truth)}"
        return
    yield from _missing(truth, report)
    for p in report.problems:
        if p.kind is not Kind.unproved and not _consequence(p, truth):
            yield from _replayed(subject, p)


def _some(truth: set[Fault]) -> str:
    return ", ".join(sorted(f"{f.kind} {f.tasks} {f.where}" for f in truth)[:3])


def signature(p: Problem) -> Signature:
    return str(p.kind), tuple(t.call for t in p.witness.tasks) if p.witness else ()


def _missing(truth: set[Fault], report: CheckReport) -> Iterator[str]:
    """Every kind and pair of calls is reported. What follows from a worse fault need not be: order
    means little where counts are wrong, and reads of what two tiles both write."""
    kinds = {f.kind for f in truth}
    reported = {signature(p) for p in report.problems}
    wanted = {(f.kind, f.calls) for f in truth}
    for worst in ("out-of-range", "cycle"):
        if worst in kinds:
            wanted = {s for s in wanted if s[0] == worst}
            break
    else:
        if kinds & COUNTS:
            events = {f.where for f in truth if f.kind in COUNTS}
            yield from _counted(events, report)
            return
    inside = {calls[0] for kind, calls in wanted if kind == "write-write" and _same(calls)}
    wanted = {s for s in wanted if not (s[0] == "uncovered-read" and s[1][0] in inside)}
    if not wanted <= reported:
        yield f"not reported: {sorted(wanted - reported)}; reported: {sorted(reported)}"


def _same(calls: tuple[str, ...]) -> bool:
    return len(set(calls)) == 1


def _counted(events: set[str], report: CheckReport) -> Iterator[str]:
    """A count that is not affine may be `unproved` where the order is refuted as well."""
    found = {p.witness.event for p in report.problems if str(p.kind) in COUNTS and p.witness}
    unproved = any(p.kind is Kind.unproved for p in report.problems)
    if not events <= found and not unproved:
        yield f"wrong counts of {sorted(events)}, reported: {sorted(map(str, found))}"


def _consequence(p: Problem, truth: set[Fault]) -> bool:
    """Brute force does not go on after an index out of range."""
    return str(p.kind) != "out-of-range" and any(f.kind == "out-of-range" for f in truth)


# ---- witnesses -----------------------------------------------------------------------------


def _replayed(subject: Subject, p: Problem) -> Iterator[str]:
    if p.witness is None:
        yield f"no witness: {p}"
        return
    dims = dict(p.witness.dims)
    tasks = tuple((t.call, tuple(v for _, v in t.coords)) for t in p.witness.tasks)
    found = {(f.kind, f.tasks) for f in subject.at(dims)}
    if (str(p.kind), tasks) not in found:
        yield f"brute force does not see the witness {p.witness} of {p.kind}: {sorted(found)[:3]}"
    elif not _interpreted(subject, str(p.kind), tasks, p.witness.event, dims):
        yield f"the interpreter does not see the witness {p.witness} of {p.kind}"


def _interpreted(
    subject: Subject, kind: str, tasks: tuple[Any, ...], event: str | None, dims: dict[str, int]
) -> bool:
    try:
        report = subject.replay(dims)
    except OutOfRange:
        return kind == "out-of-range"
    names = [Task(call, coords) for call, coords in tasks]
    if kind in RACES:
        pairs = {(r.first, r.second) for r in report.races}
        return tuple(names) in pairs or report.deadlock is not None
    if kind == "count-low":
        return any(c.event == event for c in report.over_notified) or report.deadlock is not None
    if kind == "no-producer":
        return any(u.task == names[0] for u in report.uninitialised)
    if kind == "cycle":
        # An edge against program order hangs workers that claim in that order; the interpreter has
        # all tasks in flight, and hangs only if the edges really close a circle.
        return True
    return report.deadlock is not None and any(s.task in names for s in report.deadlock.stuck)
