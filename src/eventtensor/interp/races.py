"""Conflicts between tasks, and races: conflicts that events leave unordered.

Pairs of accesses are compared only on the pieces of a tensor that `find_contested` finds, because
others have no race.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .clocks import Access, Clocks, RunLog
from .epochs import Visit, find_contested, kind_of
from .footprints import Footprint
from .numbers import Array
from .pieces import Pieces, cut_pieces
from .run_report import Race, RaceKind
from .tasks import Mode, Task

# A program without events has millions of races.
MAX_RACES = 1000
MAX_RACES_OF_ACCESS = 64


@dataclass(frozen=True)
class _TensorLog:
    """The accesses of one tensor, in order of time. `rounds` number calls and loop iterations:
    tiles of one round may add in any order."""

    accesses: list[Access]
    ids: Array
    modes: Array
    rounds: Array

    @cached_property
    def pieces(self) -> Pieces:
        return cut_pieces([a.footprint for a in self.accesses])

    def visitors(self, selected: Array) -> _Visitors:
        """The accesses of the selected pieces."""
        lengths = [len(p) for p in self.pieces.by_footprint]
        pieces = np.concatenate(self.pieces.by_footprint)
        who = np.repeat(np.arange(len(lengths)), lengths)[selected[pieces]]
        pieces = pieces[selected[pieces]]
        order = np.argsort(pieces, kind="stable")
        ends = np.cumsum(np.bincount(pieces, minlength=self.pieces.count))
        return _Visitors(self, selected, who[order], ends)


@dataclass(frozen=True)
class _Visitors:
    """Positions of the accesses of each selected piece, in order of time. Those of piece p end at
    `ends[p]` in `who`."""

    table: _TensorLog
    selected: Array
    who: Array
    ends: Array

    def conflicts(self, k: int) -> Array:
        """Positions of accesses that share a selected piece with access k and conflict by mode."""
        t = self.table
        mine = t.pieces.by_footprint[k]
        mine = mine[self.selected[mine]]
        parts = [self.who[self.ends[p - 1] if p else 0 : self.ends[p]] for p in mine.tolist()]
        near = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        found = t.ids[near] != t.ids[k]
        mode = t.modes[k]
        if mode == Mode.read:
            found &= t.modes[near] != Mode.read
        elif mode == Mode.add_unordered:
            other_round = t.rounds[near] != t.rounds[k]
            found &= (t.modes[near] != Mode.add_unordered) | other_round
        return np.asarray(near[found])


def common_index(a: Footprint, b: Footprint) -> tuple[int, ...]:
    """The first common element of two overlapping footprints of one tensor."""
    return tuple(
        int(np.intersect1d(x.indices, y.indices)[0])
        for x, y in zip(a.spans, b.spans, strict=True)
    )


def _tensor_logs(log: RunLog) -> dict[str, _TensorLog]:
    """The accesses of each tensor that a task writes. Other tensors have no conflicts."""
    groups: dict[str, list[Access]] = {}
    for a in log.accesses:
        groups.setdefault(a.footprint.tensor, []).append(a)
    return {
        name: _tensor_log(found)
        for name, found in groups.items()
        if any(a.mode is not Mode.read for a in found)
    }


def _tensor_log(found: list[Access]) -> _TensorLog:
    rounds = {r: k for k, r in enumerate(sorted({a.round for a in found}))}
    return _TensorLog(
        found,
        np.asarray([a.id for a in found]),
        np.asarray([a.mode for a in found]),
        np.asarray([rounds[a.round] for a in found]),
    )


class _Pair(NamedTuple):
    """Positions of two accesses in a table, in program order."""

    first: int
    second: int
    reversed: bool


class Conflicts:
    """The conflicts of a run."""

    def __init__(self, log: RunLog, clocks: Clocks) -> None:
        self._log = log
        self._clocks = clocks
        self._tensor_logs = _tensor_logs(log)
        self._rank = np.empty(len(log.ranks), np.int64)
        order = sorted(range(len(log.ranks)), key=lambda i: log.ranks[i])
        self._rank[np.asarray(order, np.int64)] = np.arange(len(order))

    def races(self) -> tuple[Race, ...]:
        """Conflicting pairs that events do not order as the program does, the earliest in program
        order first: at most MAX_RACES, and at most MAX_RACES_OF_ACCESS for one access."""
        found: dict[tuple[int, int, str], _Pair] = {}
        for name, table in self._tensor_logs.items():
            selected = find_contested(
                table.pieces.count, table.pieces.by_footprint, self._visits(table)
            )
            if not selected.any():
                continue
            visitors = table.visitors(selected)
            for k in range(len(table.accesses)):
                for pair in self._unordered(table, visitors, k):
                    key = (table.accesses[pair.first].id, table.accesses[pair.second].id, name)
                    found.setdefault(key, pair)
        keys = sorted(found, key=lambda p: (self._rank[p[1]], self._rank[p[0]], p[2]))
        return tuple(self._race(self._tensor_logs[key[2]], found[key]) for key in keys[:MAX_RACES])

    def _visits(self, table: _TensorLog) -> list[Visit]:
        ranks, rounds = self._rank.tolist(), table.rounds.tolist()
        return [
            Visit(a.id, ranks[a.id], kind_of(a.mode, round), self._clocks.allowed(a.id, a.stage))
            for a, round in zip(table.accesses, rounds, strict=True)
        ]

    def _unordered(self, table: _TensorLog, visitors: _Visitors, k: int) -> Iterator[_Pair]:
        """Pairs of access k and earlier conflicting ones that events do not order, or order against
        the program's order."""
        others = visitors.conflicts(k)
        others = others[others < k]
        if not len(others):
            return
        now = table.accesses[k]
        ordered = self._clocks.row(now.id, now.stage)[table.ids[others]]
        backward = self._rank[table.ids[others]] > self._rank[now.id]
        wrong = np.flatnonzero(~ordered | backward)
        earliest = np.argsort(self._rank[table.ids[others[wrong]]], kind="stable")
        for p in wrong[earliest[:MAX_RACES_OF_ACCESS]]:
            other = int(others[p])
            first, second = (k, other) if backward[p] else (other, k)
            yield _Pair(first, second, reversed=bool(ordered[p]))

    def _race(self, table: _TensorLog, pair: _Pair) -> Race:
        first, second = table.accesses[pair.first], table.accesses[pair.second]
        tasks = self._log.tasks
        return Race(
            _kind(first, second),
            tasks[first.id],
            tasks[second.id],
            first.footprint.tensor,
            common_index(first.footprint, second.footprint),
            pair.reversed,
        )

    def unneeded(self) -> tuple[tuple[Task, Task], ...]:
        """Pairs (task, producer) with a wait and without conflicting regions."""
        needed: dict[int, set[int]] = {}
        for table in self._tensor_logs.values():
            visitors = table.visitors(np.ones(table.pieces.count, np.bool_))
            for k, access in enumerate(table.accesses):
                others = table.ids[visitors.conflicts(k)].tolist()
                needed.setdefault(access.id, set()).update(others)
        out = []
        for id in self._log.executed:
            cells = {w.cell for w in self._log.waited[id]}
            waited = {n for c in cells for n in self._log.notifiers.get(c, [])} - {id}
            extra = waited - needed.get(id, set())
            out += [(self._log.tasks[id], self._log.tasks[n]) for n in sorted(extra)]
        return tuple(out)


def _kind(first: Access, second: Access) -> RaceKind:
    if first.mode is Mode.read:
        return RaceKind.write_after_read
    return RaceKind.uncovered_read if second.mode is Mode.read else RaceKind.write_write
