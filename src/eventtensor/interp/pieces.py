"""Cuts a tensor into pieces that no access splits: what holds for one element of a piece holds for
all of them. Tiles of any size then cost as much as single elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .numbers import Array
from .regions import Footprint, Span


@dataclass(frozen=True, slots=True)
class Pieces:
    """`of[k]` are the numbers of the pieces that footprint k consists of, ascending."""

    count: int
    of: list[Array]


def cut(prints: Sequence[Footprint]) -> Pieces:
    """The pieces of footprints of one tensor, none of them empty."""
    axes = [_axis([f.spans[k] for f in prints]) for k in range(len(prints[0].spans))]
    numbers = [np.zeros(1, np.int64)] * len(prints)
    count = 1
    for found, size in axes:
        numbers = [
            n * size + f if len(n) == 1 or len(f) == 1
            else (n[:, None] * size + f[None, :]).reshape(-1)
            for n, f in zip(numbers, found, strict=True)
        ]
        count *= size
    return Pieces(count, numbers)


def _axis(spans: list[Span]) -> tuple[list[Array], int]:
    """For each span the numbers of its pieces on one axis, and how many there are in all."""
    rows = {k: np.unique(s.picks) for k, s in enumerate(spans) if not isinstance(s.picks, slice)}
    edges = np.asarray([s.bounds for s in spans], np.int64)
    cuts = np.unique(np.concatenate([edges.reshape(-1), *rows.values(),
                                     *(r + 1 for r in rows.values())]))
    first, last = np.searchsorted(cuts, edges.T).tolist()
    every = np.arange(len(cuts))
    found = [
        np.searchsorted(cuts, rows[k]) if k in rows else every[a:b]
        for k, (a, b) in enumerate(zip(first, last, strict=True))
    ]
    return found, len(cuts)
