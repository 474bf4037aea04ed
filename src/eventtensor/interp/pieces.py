"""Cuts a tensor into pieces that no access splits.

What holds for one element of a piece holds for all of them, so tiles of any size cost as much as
single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .footprints import Footprint, Span
from .numbers import Array


@dataclass(frozen=True, slots=True)
class Pieces:
    """`by_footprint[k]` are the numbers of the pieces of footprint k, ascending."""

    count: int
    by_footprint: list[Array]


def cut_pieces(prints: Sequence[Footprint]) -> Pieces:
    """The pieces of footprints of one tensor. No footprint is empty."""
    axes = [_axis([f.spans[k] for f in prints]) for k in range(len(prints[0].spans))]
    if not axes:
        return Pieces(1, [np.zeros(1, np.int64)] * len(prints))
    (numbers, count), *others = axes
    for found, size in others:
        numbers = [
            n * size + f if len(n) == 1 or len(f) == 1
            else (n[:, None] * size + f[None, :]).reshape(-1)
            for n, f in zip(numbers, found, strict=True)
        ]
        count *= size
    return Pieces(count, numbers)


def _axis(spans: list[Span]) -> tuple[list[Array], int]:
    """For each span the numbers of its pieces on one axis, and the number of all pieces. Single
    elements of one index share a span, which is cut once."""
    distinct = {id(s): s for s in spans}
    starts: list[int] = []
    for s in distinct.values():
        starts += (s.picks.start, s.picks.stop) if isinstance(s.picks, slice) else _rows(s.picks)
    cuts, numbers = np.unique(np.asarray(starts, np.int64), return_inverse=True)
    every, ends, at = np.arange(len(cuts)), numbers.tolist(), 0
    pieces: dict[int, Array] = {}
    for key, s in distinct.items():
        if isinstance(s.picks, slice):
            pieces[key] = every[ends[at] : ends[at + 1]]
            at += 2
        else:
            count = 2 * len(set(s.picks.tolist()))
            pieces[key] = numbers[at : at + count : 2]
            at += count
    return [pieces[id(s)] for s in spans], len(cuts)


def _rows(picks: Array) -> list[int]:
    """The start and end of each row, ascending."""
    return [edge for row in sorted(set(picks.tolist())) for edge in (row, row + 1)]
