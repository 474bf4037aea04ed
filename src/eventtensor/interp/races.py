"""Conflicts between tasks: which touch a common element, and which of those events leave unordered.

Pairs are looked at only on pieces of a tensor that `contested` finds: others have no race.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .clocks import Access, Clocks, Trace
from .epochs import Visit, contested, kind_of
from .footprints import Footprint
from .numbers import Array
from .pieces import Pieces, cut
from .run_report import Race, RaceKind
from .tasks import Mode, Task

# A program without events has millions of races; nobody reads more than these.
LIMIT = 1000
LIMIT_EACH = 64


@dataclass(frozen=True)
class _Table:
    """The accesses of one tensor, in order of time; `rounds` number calls and loop iterations
    (tiles of one round may add in any order)."""

    accesses: list[Access]
    ids: Array
    modes: Array
    rounds: Array

    @cached_property
    def pieces(self) -> Pieces:
        return cut([a.footprint for a in self.accesses])

    def visitors(self, chosen: Array) -> _Visitors:
        """Who touches the chosen pieces."""
        lengths = [len(p) for p in self.pieces.of]
        pieces = np.concatenate(self.pieces.of)
        who = np.repeat(np.arange(len(lengths)), lengths)[chosen[pieces]]
        pieces = pieces[chosen[pieces]]
        order = np.argsort(pieces, kind="stable")
        ends = np.cumsum(np.bincount(pieces, minlength=self.pieces.count))
        return _Visitors(self, chosen, who[order], ends)


@dataclass(frozen=True)
class _Visitors:
    """Positions of the accesses of each chosen piece, in order of time: those of piece p end at
    `ends[p]` in `who`."""

    table: _Table
    chosen: Array
    who: Array
    ends: Array

    def conflicts(self, k: int) -> Array:
        """Positions of accesses that share a chosen piece with the k-th and conflict by mode."""
        t = self.table
        mine = t.pieces.of[k]
        mine = mine[self.chosen[mine]]
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
    rounds = {r: k for k, r in enumerate(sorted({a.round for a in found}))}
    return _Table(
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
    """All questions about conflicts in a trace."""

    def __init__(self, trace: Trace, clocks: Clocks) -> None:
        self._trace = trace
        self._clocks = clocks
        self._tables = _tables(trace)
        self._rank = np.empty(len(trace.ranks), np.int64)
        order = sorted(range(len(trace.ranks)), key=lambda i: trace.ranks[i])
        self._rank[np.asarray(order, np.int64)] = np.arange(len(order))

    def races(self) -> tuple[Race, ...]:
        """Conflicting pairs that events do not order as the program does; at most LIMIT (and
        LIMIT_EACH for one access), the earliest in program order first."""
        found: dict[tuple[int, int, str], _Pair] = {}
        for name, table in self._tables.items():
            chosen = contested(table.pieces.count, table.pieces.of, self._visits(table))
            if not chosen.any():
                continue
            visitors = table.visitors(chosen)
            for k in range(len(table.accesses)):
                for pair in self._unordered(table, visitors, k):
                    key = (table.accesses[pair.first].id, table.accesses[pair.second].id, name)
                    found.setdefault(key, pair)
        keys = sorted(found, key=lambda p: (self._rank[p[1]], self._rank[p[0]], p[2]))
        return tuple(self._race(self._tables[key[2]], found[key]) for key in keys[:LIMIT])

    def _visits(self, table: _Table) -> list[Visit]:
        ranks, rounds = self._rank.tolist(), table.rounds.tolist()
        return [
            Visit(a.id, ranks[a.id], kind_of(a.mode, round), self._clocks.allowed(a.id, a.stage))
            for a, round in zip(table.accesses, rounds, strict=True)
        ]

    def _unordered(self, table: _Table, visitors: _Visitors, k: int) -> Iterator[_Pair]:
        """The k-th access with each conflicting one before it in time that is not surely first, or
        is so against the program's order."""
        others = visitors.conflicts(k)
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
        for table in self._tables.values():
            visitors = table.visitors(np.ones(table.pieces.count, np.bool_))
            for k, access in enumerate(table.accesses):
                others = table.ids[visitors.conflicts(k)].tolist()
                needed.setdefault(access.id, set()).update(others)
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
