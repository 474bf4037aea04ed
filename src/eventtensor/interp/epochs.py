"""Finds the pieces of a tensor on which two accesses race, without comparing pairs.

The accesses of a piece form groups in order of time: successive reads, successive additions of one
round, and single writes. Members of a group do not conflict. Order is transitive, so a piece has no
race exactly if each access comes after the whole previous group. As in FastTrack, the last two
groups of a piece are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .numbers import Array
from .tasks import Mode

# Kinds of groups. The kind of additions is the number of their round, which is not negative.
_NONE, _WRITE, _READ = -3, -2, -1


class Visit(NamedTuple):
    """An access by task `id`, number `rank` in program order. `allowed` is the bit set of the task
    itself and of those that have always ended by then."""

    id: int
    rank: int
    kind: int
    allowed: int


def kind_of(mode: Mode, round: int) -> int:
    """Successive accesses of one kind are a group, except for writes."""
    match mode:
        case Mode.read:
            return _READ
        case Mode.write:
            return _WRITE
        case Mode.add_unordered:
            return round


@dataclass(slots=True)
class _Groups:
    """Groups as chains: group g is group `rest[g]` and one more task; group 0 is empty. `top` is
    the last rank. `known` and `joined` cache the bit sets of groups and of lists of groups."""

    rest: list[int] = field(default_factory=lambda: [-1])
    task: list[int] = field(default_factory=lambda: [-1])
    kind: list[int] = field(default_factory=lambda: [_NONE])
    top: list[int] = field(default_factory=lambda: [-1])
    known: dict[int, int] = field(default_factory=dict)
    joined: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def add(self, rest: int, v: Visit) -> int:
        """A group of `rest` and one more visit."""
        self.rest.append(rest)
        self.task.append(v.id)
        self.kind.append(v.kind)
        self.top.append(max(self.top[rest], v.rank))
        return len(self.rest) - 1

    def members(self, group: int) -> int:
        """The tasks as a bit set."""
        if group not in self.known:
            bits, g = 0, group
            while g:
                bits |= 1 << self.task[g]
                g = self.rest[g]
            self.known[group] = bits
        return self.known[group]

    def are_all_before(self, groups: Array, v: Visit) -> bool:
        key = groups.tobytes()
        if key not in self.joined:
            bits, top = 0, -1
            for g in set(groups.tolist()):
                bits |= self.members(g)
                top = max(top, self.top[g])
            self.joined[key] = bits, top
        bits, top = self.joined[key]
        return top <= v.rank and bits | v.allowed == v.allowed

    def is_before(self, group: int, v: Visit) -> bool:
        if not group or self.top[group] > v.rank:
            return not group
        if not self.rest[group]:
            return bool(v.allowed >> self.task[group] & 1)
        return self.members(group) | v.allowed == v.allowed


def find_contested(count: int, pieces: Sequence[Array], visits: Sequence[Visit]) -> Array:
    """Which of `count` pieces have a race. Visits and their pieces are in order of time."""
    state = _PieceStates(count)
    for at, v in zip(pieces, visits, strict=True):
        if len(at) < _MIN_BATCH:
            for piece in at.tolist():
                state.visit_one(piece, v)
        else:
            state.visit_many(at, v)
    return state.found


# From so many pieces on, one batch is faster than one piece at a time.
_MIN_BATCH = 12


class _PieceStates:
    """The last two groups of each piece, and whether it has a race."""

    def __init__(self, count: int) -> None:
        self.groups = _Groups()
        self.now, self.previous = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.found = np.zeros(count, np.bool_)

    def visit_one(self, piece: int, v: Visit) -> None:
        groups, current = self.groups, self.now.item(piece)
        if groups.kind[current] == v.kind != _WRITE:
            earlier = self.previous.item(piece)
            self.now[piece] = groups.add(current, v)
        else:
            earlier = self.previous[piece] = current
            self.now[piece] = groups.add(0, v)
        if earlier and not groups.is_before(earlier, v):
            self.found[piece] = True

    def visit_many(self, at: Array, v: Visit) -> None:
        """`visit_one` for many pieces, which looks at a group of several pieces once."""
        current = self.now[at]
        joins = np.zeros(len(at), np.bool_)
        for g in set(current.tolist()) if v.kind != _WRITE else ():
            if self.groups.kind[g] == v.kind:
                same = current == g
                joins |= same
                self._check(at[same], self.previous[at[same]], v)
                self.now[at[same]] = self.groups.add(g, v)
        new = at[~joins]
        if len(new):
            self._check(new, self.now[new], v)
            self.previous[new] = self.now[new]
            self.now[new] = self.groups.add(0, v)

    def _check(self, at: Array, earlier: Array, v: Visit) -> None:
        if not self.groups.are_all_before(earlier, v):
            self.found[at] |= [not self.groups.is_before(g, v) for g in earlier.tolist()]
