"""Conflicts between tasks: which touch a common element, and which of those events leave unordered.

Regions are products of index sets, so overlaps are found on boxes, all accesses of a tensor at
once, and refined by bit sets where rows are gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .clocks import Access, Clocks, Trace
from .numbers import Array
from .regions import Footprint
from .report import Race, RaceKind
from .tasks import Mode, Task

# A program without events has millions of races; nobody reads more than these.
LIMIT = 1000
LIMIT_EACH = 64


@dataclass(frozen=True, slots=True)
class _Table:
    """The accesses of one tensor, in order of time; `rounds` number calls and loop iterations
    (tiles of one round may add in any order), `lo` and `hi` are hulls, one row an axis.
    `sets` are the exact index sets as bits, axis by axis, where some access is not a box."""

    accesses: list[Access]
    ids: Array
    modes: Array
    rounds: Array
    lo: Array
    hi: Array
    sets: list[tuple[int, ...]] | None

    def conflicts(self, k: int) -> Array:
        """Positions of accesses that share an element with the k-th and conflict by mode."""
        mode = self.modes[k]
        found = self.ids != self.ids[k]
        if mode == Mode.read.value:
            found &= self.modes != Mode.read.value
        elif mode == Mode.add_unordered.value:
            found &= (self.modes != Mode.add_unordered.value) | (self.rounds != self.rounds[k])
        for lo, hi in zip(self.lo, self.hi, strict=True):
            found &= lo < hi[k]
            found &= hi > lo[k]
        near = np.flatnonzero(found)
        sets = self.sets
        if sets is None:
            return near
        exact = [all(a & b for a, b in zip(sets[k], sets[o], strict=True)) for o in near]
        return near[np.asarray(exact, np.bool_)]


def common_index(a: Footprint, b: Footprint) -> tuple[int, ...]:
    """The first element that two overlapping footprints of one tensor share."""
    return tuple(
        int(np.intersect1d(x.indices, y.indices)[0])
        for x, y in zip(a.spans, b.spans, strict=True)
    )


def _tables(trace: Trace) -> dict[str, _Table]:
    """Tensors that some task writes; others have no conflicts."""
    groups: dict[str, list[Access]] = {}
    for a in trace.accesses:
        groups.setdefault(a.footprint.tensor, []).append(a)
    return {
        name: _table(found)
        for name, found in groups.items()
        if any(a.mode is not Mode.read for a in found)
    }


def _table(found: list[Access]) -> _Table:
    prints = [a.footprint for a in found]
    shape = (len(found), len(prints[0].spans), 2)
    hull = np.asarray([[s.bounds for s in f.spans] for f in prints], np.int64).reshape(shape)
    boxes = all(f.is_box for f in prints)
    rounds = {r: k for k, r in enumerate(sorted({a.round for a in found}))}
    return _Table(
        found,
        np.asarray([a.id for a in found]),
        np.asarray([a.mode.value for a in found]),
        np.asarray([rounds[a.round] for a in found]),
        np.ascontiguousarray(hull[..., 0].T),
        np.ascontiguousarray(hull[..., 1].T),
        None if boxes else [tuple(s.bits for s in f.spans) for f in prints],
    )


class _Pair(NamedTuple):
    """Positions of two accesses in a table, in program order."""

    first: int
    second: int
    reversed: bool


class Conflicts:
    """All questions about conflicts in a trace."""

    def __init__(self, trace: Trace, clocks: Clocks) -> None:
        self._trace = trace
        self._clocks = clocks
        self._tables = _tables(trace)
        self._met = {
            name: [table.conflicts(k) for k in range(len(table.accesses))]
            for name, table in self._tables.items()
        }
        self._rank = np.empty(len(trace.ranks), np.int64)
        order = sorted(range(len(trace.ranks)), key=lambda i: trace.ranks[i])
        self._rank[np.asarray(order, np.int64)] = np.arange(len(order))

    def races(self) -> tuple[Race, ...]:
        """Conflicting pairs that events do not order as the program does; at most LIMIT (and
        LIMIT_EACH for one access), the earliest in program order first."""
        found: dict[tuple[int, int, str], _Pair] = {}
        for name, table in self._tables.items():
            for k in range(len(table.accesses)):
                for pair in self._unordered(name, table, k):
                    key = (table.accesses[pair.first].id, table.accesses[pair.second].id, name)
                    found.setdefault(key, pair)
        keys = sorted(found, key=lambda p: (self._rank[p[1]], self._rank[p[0]], p[2]))
        return tuple(self._race(self._tables[key[2]], found[key]) for key in keys[:LIMIT])

    def _unordered(self, name: str, table: _Table, k: int) -> Iterator[_Pair]:
        """The k-th access with each conflicting one before it in time that is not surely first, or
        is so against the program's order."""
        others = self._met[name][k]
        others = others[others < k]
        if not len(others):
            return
        now = table.accesses[k]
        ordered = self._clocks.row(now.id, now.stage)[table.ids[others]]
        backward = self._rank[table.ids[others]] > self._rank[now.id]
        wrong = np.flatnonzero(~ordered | backward)
        earliest = np.argsort(self._rank[table.ids[others[wrong]]], kind="stable")
        for p in wrong[earliest[:LIMIT_EACH]]:
            other = int(others[p])
            first, second = (k, other) if backward[p] else (other, k)
            yield _Pair(first, second, reversed=bool(ordered[p]))

    def _race(self, table: _Table, pair: _Pair) -> Race:
        first, second = table.accesses[pair.first], table.accesses[pair.second]
        tasks = self._trace.tasks
        return Race(
            _kind(first, second),
            tasks[first.id],
            tasks[second.id],
            first.footprint.tensor,
            common_index(first.footprint, second.footprint),
            pair.reversed,
        )

    def unneeded(self) -> tuple[tuple[Task, Task], ...]:
        """Pairs (task, producer): waited for, though no regions conflict."""
        needed: dict[int, set[int]] = {}
        for name, table in self._tables.items():
            for access, others in zip(table.accesses, self._met[name], strict=True):
                needed.setdefault(access.id, set()).update(table.ids[others].tolist())
        out = []
        for id in self._trace.executed:
            cells = {w.cell for w in self._trace.waited[id]}
            waited = {n for c in cells for n in self._trace.notifiers.get(c, [])} - {id}
            extra = waited - needed.get(id, set())
            out += [(self._trace.tasks[id], self._trace.tasks[n]) for n in sorted(extra)]
        return tuple(out)


def _kind(first: Access, second: Access) -> RaceKind:
    if first.mode is Mode.read:
        return RaceKind.write_after_read
    return RaceKind.uncovered_read if second.mode is Mode.read else RaceKind.write_write
