"""Regions at concrete coordinates: which elements a task touches, and how they lie in its tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from ..errors import OutOfRange
from ..ir.program import GridAxis
from ..ir.tensor import Axis, DType, Pad, Point, Region, Rows, Slice, axis_exprs
from ..ir.walk import LoadFn, evaluate, loads_of
from .evaluate import Place
from .numbers import Array, from_storage, to_storage

Picks = slice | Array


@dataclass(frozen=True, slots=True)
class Span:
    """One axis: the tile has `extent` entries (no axis at all if not `kept`); the entries `at` hold
    the tensor's elements `picks`, the others hold padding."""

    picks: Picks
    at: Picks
    extent: int
    kept: bool = True

    @property
    def bounds(self) -> tuple[int, int]:
        """The half-open hull of the elements."""
        if isinstance(self.picks, slice):
            return self.picks.start, self.picks.stop
        return (int(self.picks.min()), int(self.picks.max()) + 1) if len(self.picks) else (0, 0)

    @property
    def indices(self) -> Array:
        return np.arange(*self.bounds) if isinstance(self.picks, slice) else self.picks


@dataclass(frozen=True, slots=True)
class Footprint:
    """The elements of one region, a product of spans."""

    tensor: str
    spans: tuple[Span, ...]
    pad: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tile."""
        return tuple(s.extent for s in self.spans if s.kept)

    @property
    def empty(self) -> bool:
        return any(lo >= hi for lo, hi in (s.bounds for s in self.spans))

    def key(self) -> tuple[Any, ...]:
        """NumPy's key of the elements, one axis for each of the tensor's."""
        return _key([s.picks for s in self.spans])

    def inner(self) -> tuple[Any, ...]:
        """NumPy's key of the same elements within the full tile."""
        return _key([s.at for s in self.spans])

    @property
    def full_shape(self) -> tuple[int, ...]:
        return tuple(s.extent for s in self.spans)

    def index_at(self, position: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor index of an entry of `array[key()]`."""
        return tuple(
            int(s.indices[p]) for s, p in zip(self.spans, position, strict=True)
        )


def _key(picks: list[Picks]) -> tuple[Any, ...]:
    if all(isinstance(p, slice) for p in picks):
        return tuple(picks)
    return np.ix_(*(np.arange(p.start, p.stop) if isinstance(p, slice) else p for p in picks))


def point(tensor: str, index: tuple[int, ...]) -> Footprint:
    one = slice(0, 1)
    return Footprint(tensor, tuple(Span(slice(i, i + 1), one, 1, False) for i in index))


def fetch(f: Footprint, array: Array, dtype: DType) -> Array:
    """The tile, in the tile dtype. It may be a view: tiles are never changed in place."""
    found = from_storage(array[f.key()], dtype)
    if f.pad is not None:
        full = np.full(f.full_shape, f.pad, found.dtype)
        full[f.inner()] = found
        found = full
    return found.reshape(f.shape)


def put(f: Footprint, array: Array, tile: Array, assigned: Array, dtype: DType) -> None:
    """Store the assigned entries of a tile."""
    new = to_storage(tile, dtype).reshape(f.full_shape)[f.inner()]
    if assigned.all():
        array[f.key()] = new
    else:
        mask = assigned.reshape(f.full_shape)[f.inner()]
        array[f.key()] = np.where(mask, new, array[f.key()])


def add_into(f: Footprint, array: Array, tiles: list[Array], dtype: DType) -> None:
    """Add tiles in order, in the tile dtype, with one rounding to storage at the end. An element
    that gathered rows name twice gets both additions, in row order."""
    cells, where = np.unique(_linear(f, array.shape), return_inverse=True)
    index = np.unravel_index(cells, array.shape)
    total = from_storage(array[index], dtype).copy()
    for tile in tiles:
        np.add.at(total, where.reshape(-1), tile.reshape(f.full_shape)[f.inner()].reshape(-1))
    array[index] = to_storage(total, dtype)


def _linear(f: Footprint, shape: tuple[int, ...]) -> Array:
    """Row-major numbers of the elements."""
    out = np.zeros((), np.int64)
    for span, size in zip(f.spans, shape, strict=True):
        out = out[..., None] * size + span.indices
    return out


def grid_points(
    axes: tuple[GridAxis, ...], env: Mapping[str, int], load: LoadFn | None = None
) -> Iterator[dict[str, int]]:
    """`env` extended by the coordinates of every tile, in lexicographic order."""
    if not axes:
        yield dict(env)
        return
    for k in range(evaluate(axes[0].extent, env, load)):
        yield from grid_points(axes[1:], {**env, axes[0].var: k}, load)


# ---- resolving -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis being resolved: where, how large, how far it may overhang, for messages."""

    region: Region
    number: int
    size: int
    pad: tuple[int, int] | None
    place: Place

    def fail(self, index: int | str) -> None:
        raise OutOfRange(
            f"{self.place.label} uses {self.region}, which is index {index} on axis {self.number} "
            f"of '{self.region.tensor}', whose extent is {self.size}",
            place=self.place.place,
        )


def resolve(
    region: Region,
    shape: tuple[int, ...],
    env: Mapping[str, int],
    load: LoadFn,
    place: Place,
) -> Footprint:
    """The elements of a region. A slice may overhang the upper end, and is clipped there; any other
    index outside the tensor (and its padding) raises OutOfRange."""
    spans = []
    for k, (axis, size) in enumerate(zip(region.axes, shape, strict=True)):
        pad = None if region.pad is None else (region.pad.lo[k], region.pad.hi[k])
        spans.append(_span(axis, _Axis(region, k, size, pad, place), env, load))
    return Footprint(region.tensor, tuple(spans), _pad_value(region.pad))


def _pad_value(pad: Pad | None) -> float | None:
    return None if pad is None else pad.value


def _span(axis: Axis, at: _Axis, env: Mapping[str, int], load: LoadFn) -> Span:
    match axis:
        case Point(index):
            one = np.asarray([evaluate(index, env, load)])
            found = _rows(one, at)
            return Span(found.picks, found.at, 1, kept=False)
        case Slice(start, stop):
            lo, hi = evaluate(start, env, load), evaluate(stop, env, load)
            return _slice(lo, hi, at, data=bool(loads_of(*axis_exprs(axis))))
        case Rows(var, extent, index):
            n = max(0, evaluate(extent, env, load))
            scope = dict(env)
            rows = np.empty(n, np.int64)
            for k in range(n):
                scope[var] = k
                rows[k] = evaluate(index, scope, load)
            return _rows(rows, at)
        case _:
            assert_never(axis)


def _rows(rows: Array, at: _Axis) -> Span:
    low, high = at.pad or (0, 0)
    bad = (rows < -low) | (rows >= at.size + high)
    if bad.any():
        at.fail(int(rows[bad][0]))
    inside = np.flatnonzero((rows >= 0) & (rows < at.size))
    if len(rows) == 1 and len(inside) == 1:
        return Span(slice(int(rows[0]), int(rows[0]) + 1), slice(0, 1), 1)
    return Span(rows[inside], inside, len(rows))


def _slice(lo: int, hi: int, at: _Axis, data: bool) -> Span:
    low, high = at.pad or (0, 0)
    if lo < -low or (hi > lo >= at.size + high and not data):
        at.fail(f"{lo}:{hi}")
    first, last = max(lo, 0), min(hi, at.size)
    picks = slice(min(first, at.size), max(first, last) if first < at.size else at.size)
    if at.pad is None:
        return Span(picks, slice(0, picks.stop - picks.start), picks.stop - picks.start)
    offset = min(max(0, -lo), max(0, hi - lo))
    return Span(picks, slice(offset, offset + picks.stop - picks.start), max(0, hi - lo))
