"""Races by looking at every pair of accesses and every element: slow, and plainly right."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np

from eventtensor.interp.clocks import Access, Clocks, RunLog, WaitRecord
from eventtensor.interp.footprints import Footprint, Span
from eventtensor.interp.races import MAX_RACES_OF_ACCESS
from eventtensor.interp.run_report import Race, RaceKind
from eventtensor.interp.tasks import Mode, Task

Found = tuple[str, Task, Task, str, bool]


def elements(a: Access) -> set[tuple[int, ...]]:
    return set(product(*(map(int, s.indices) for s in a.footprint.spans)))


def do_conflict(a: Access, b: Access) -> bool:
    if a.id == b.id or a.mode is b.mode is Mode.read:
        return False
    return not (a.mode is b.mode is Mode.add_unordered and a.round == b.round)


def all_races(trace: RunLog, clocks: Clocks) -> set[Found]:
    """Every race of a trace, without limits, one for each pair of tasks and tensor and way."""
    found: set[Found] = set()
    for early, late in combinations(trace.accesses, 2):
        same = early.footprint.tensor == late.footprint.tensor
        if not same or not do_conflict(early, late) or not elements(early) & elements(late):
            continue
        ordered = bool(clocks.before(late.id, late.stage) >> early.id & 1)
        backward = trace.ranks[early.id] > trace.ranks[late.id]
        if ordered and not backward:
            continue
        first, second = (late, early) if backward else (early, late)
        found.add((_kind(first, second), trace.tasks[first.id], trace.tasks[second.id],
                   early.footprint.tensor, ordered))
    return found


def _kind(first: Access, second: Access) -> str:
    if first.mode is Mode.read:
        return str(RaceKind.write_after_read)
    return str(RaceKind.uncovered_read if second.mode is Mode.read else RaceKind.write_write)


def assert_same_races(trace: RunLog, clocks: Clocks, races: tuple[Race, ...]) -> None:
    """A report names one race for each pair of tasks and tensor, at an element that both touch."""
    want = all_races(trace, clocks)
    got = {(str(r.kind), r.first, r.second, r.tensor, r.reversed) for r in races}
    assert got <= want, sorted(map(str, got - want))[:3]
    assert len(got) == len(races)
    if len(want) < MAX_RACES_OF_ACCESS:
        assert {f[1:4] for f in got} == {f[1:4] for f in want}
    else:
        assert got
    for r in races:
        ids = [trace.tasks.index(t) for t in (r.first, r.second)]
        touched = [
            {e for a in trace.accesses if a.id == i and a.footprint.tensor == r.tensor
             for e in elements(a)} for i in ids
        ]
        assert r.index in touched[0] & touched[1]


def random_trace(seed: int) -> RunLog:
    """Tasks that run in one order and have another in the program; waits on cells, some of which
    get more notifies than waits ask for; regions that are boxes or gathered rows."""
    rng = np.random.default_rng(seed)
    trace, count = RunLog(), int(rng.integers(2, 9))
    ranks = rng.permutation(count) if rng.random() < 0.5 else np.arange(count)
    for k in range(count):
        trace.add(Task("t", (k,)), (int(ranks[k]),), None)
    for k in range(count):
        _one_task(trace, k, rng)
    return trace


def _one_task(trace: RunLog, id: int, rng: np.random.Generator) -> None:
    cells = sorted(trace.notifiers)
    stages = int(rng.integers(0, 4)) if cells else 0
    for stage in range(stages):
        cell = cells[int(rng.integers(len(cells)))]
        most = len(trace.notifiers[cell])
        target = most if rng.random() < 0.7 else int(rng.integers(0, most + 1))
        trace.waited[id].append(WaitRecord(stage, cell, target))
    for stage in range(stages + 1):
        for _ in range(int(rng.integers(0, 3))):
            mode = list(Mode)[int(rng.integers(3))]
            round = (int(rng.integers(2)),)
            trace.accesses.append(Access(id, stage, mode, _footprint(rng), round))
    trace.executed.append(id)
    for cell in {("e", (int(c),)) for c in rng.integers(0, 4, int(rng.integers(0, 3)))}:
        trace.notifiers.setdefault(cell, []).append(id)


def _footprint(rng: np.random.Generator) -> Footprint:
    return Footprint("ab"[int(rng.integers(2))], (_span(6, rng), _span(5, rng)))


def _span(size: int, rng: np.random.Generator) -> Span:
    if rng.random() < 0.3:
        rows = rng.integers(0, size, int(rng.integers(1, 4)))
        return Span(rows, np.arange(len(rows)), len(rows))
    lo = int(rng.integers(size))
    hi = int(rng.integers(lo + 1, size + 1))
    return Span(slice(lo, hi), slice(0, hi - lo), hi - lo)
