"""Footprints: the elements that a task touches, and their entries in its tile.

A footprint is a region at concrete coordinates. Which accesses conflict is decided in races.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, assert_never

import numpy as np

from ..errors import OutOfRange
from ..ir.expr_functions import ExprFunctions, function_of
from ..ir.program import GridAxis
from ..ir.tensor import Axis, DType, Point, Region, Rows, Slice
from ..ir.walk import LoadFn, loads_of
from .evaluate import Place
from .numbers import Array, from_storage, to_storage

Picks = slice | Array
_ONE = slice(0, 1)


class Span(NamedTuple):
    """One axis of a footprint. The tile has `extent` entries, and no axis without `has_axis`. Its
    entries `at` are the tensor's elements `picks`; the others are padding."""

    picks: Picks
    at: Picks
    extent: int
    has_axis: bool = True

    @property
    def bounds(self) -> tuple[int, int]:
        """The half-open hull of the elements."""
        if isinstance(self.picks, slice):
            return self.picks.start, self.picks.stop
        return (int(self.picks.min()), int(self.picks.max()) + 1) if len(self.picks) else (0, 0)

    @property
    def indices(self) -> Array:
        return np.arange(*self.bounds) if isinstance(self.picks, slice) else self.picks


class Footprint(NamedTuple):
    """The elements of one region, a product of spans. `element` is the index if there is one
    element and the tile has no axes, which is common and has fast paths."""

    tensor: str
    spans: tuple[Span, ...]
    pad: float | None = None
    element: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tile."""
        return tuple([s.extent for s in self.spans if s.has_axis])

    @property
    def is_empty(self) -> bool:
        if self.element is not None:
            return False
        for s in self.spans:
            if s.picks.start >= s.picks.stop if isinstance(s.picks, slice) else not len(s.picks):
                return True
        return False

    def key(self) -> tuple[Any, ...]:
        """NumPy's key of the elements, one axis for each of the tensor's."""
        return _key([s.picks for s in self.spans])

    def inner(self) -> tuple[Any, ...]:
        """NumPy's key of the same elements in the full tile."""
        return _key([s.at for s in self.spans])

    @property
    def full_shape(self) -> tuple[int, ...]:
        return tuple([s.extent for s in self.spans])

    def index_at(self, position: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor index of an entry of `array[key()]`."""
        return tuple(
            int(s.indices[p]) for s, p in zip(self.spans, position, strict=True)
        )


def _key(picks: list[Picks]) -> tuple[Any, ...]:
    gathered = [k for k, p in enumerate(picks) if not isinstance(p, slice)]
    if len(gathered) < 2:
        return tuple(picks)
    return np.ix_(*(np.arange(p.start, p.stop) if isinstance(p, slice) else p for p in picks))


@lru_cache(maxsize=1 << 16)
def _at(index: int) -> Span:
    return Span(slice(index, index + 1), _ONE, 1, has_axis=False)


def point(tensor: str, index: tuple[int, ...]) -> Footprint:
    return Footprint(tensor, tuple([_at(i) for i in index]), None, index)


def fetch(f: Footprint, array: Array, dtype: DType) -> Array:
    """The tile, in its tile dtype. It may be a view, because tiles are immutable."""
    if f.element is not None:
        return from_storage(array[f.element], dtype)
    found = from_storage(array[f.key()], dtype)
    if f.pad is not None:
        full = np.full(f.full_shape, f.pad, found.dtype)
        full[f.inner()] = found
        found = full
    return found.reshape(f.shape)


def put(f: Footprint, array: Array, tile: Array, assigned: Array, dtype: DType) -> None:
    """Store the assigned entries of a tile."""
    if f.element is not None:
        if assigned:
            array[f.element] = to_storage(tile, dtype)
        return
    new = to_storage(tile, dtype).reshape(f.full_shape)[f.inner()]
    if bool(assigned.all()):
        array[f.key()] = new
    else:
        mask = assigned.reshape(f.full_shape)[f.inner()]
        array[f.key()] = np.where(mask, new, array[f.key()])


def add_into(f: Footprint, array: Array, tiles: list[Array], dtype: DType) -> None:
    """Add tiles in order, in the tile dtype, and round to storage once. An element that two
    gathered rows have gets both additions, in row order."""
    cells, where = np.unique(_linear(f, array.shape), return_inverse=True)
    index = np.unravel_index(cells, array.shape)
    total = from_storage(array[index], dtype).copy()
    for tile in tiles:
        np.add.at(total, where.reshape(-1), tile.reshape(f.full_shape)[f.inner()].reshape(-1))
    array[index] = to_storage(total, dtype)


def _linear(f: Footprint, shape: tuple[int, ...]) -> Array:
    """The row-major numbers of the elements."""
    out = np.zeros((), np.int64)
    for span, size in zip(f.spans, shape, strict=True):
        out = out[..., None] * size + span.indices
    return out


def grid_points(
    axes: tuple[GridAxis, ...], env: Mapping[str, int], load: LoadFn, functions: ExprFunctions
) -> Iterator[dict[str, int]]:
    """`env` with the coordinates of every tile, in lexicographic order."""
    if not axes:
        yield dict(env)
        return
    for k in range(functions.value(axes[0].extent, env, load)):
        yield from grid_points(axes[1:], {**env, axes[0].var: k}, load, functions)


# ---- resolving -----------------------------------------------------------------------------


Env = Mapping[str, int]
Locate = Callable[[Env, LoadFn, Place], Footprint]


def locator(region: Region, shape: tuple[int, ...]) -> Locate:
    """A function that finds the elements of a region for a task. A slice is clipped at the upper
    end. Any other index outside the tensor and its padding raises OutOfRange."""
    name, pad = region.tensor, region.pad
    finders = [
        _finder(axis, size, (0, 0) if pad is None else (pad.lo[k], pad.hi[k]), region.pads_axis(k))
        for k, (axis, size) in enumerate(zip(region.axes, shape, strict=True))
    ]

    def locate(env: Env, load: LoadFn, place: Place) -> Footprint:
        spans: list[Span] = []
        try:
            for find in finders:
                spans.append(find(env, load))
        except _Outside as e:
            raise outside(e, len(spans), place) from None
        return Footprint(name, tuple(spans), None if pad is None else pad.value)

    def outside(index: object, axis: int, place: Place) -> OutOfRange:
        return OutOfRange(
            f"{place.label} uses {region}, which is index {index} on axis {axis} "
            f"of '{name}', whose extent is {shape[axis]}",
            place=place.place,
        )

    points = [(function_of(a.index), s) for a, s in zip(region.axes, shape, strict=True)
              if isinstance(a, Point)]
    if pad is not None or len(points) < len(shape):
        return locate

    def locate_element(env: Env, load: LoadFn, place: Place) -> Footprint:
        index: list[int] = []
        for value, size in points:
            at = value(env, load)
            if not 0 <= at < size:
                raise outside(at, len(index), place)
            index.append(at)
        return point(name, tuple(index))

    return locate_element


def _finder(
    axis: Axis, size: int, room: tuple[int, int], padded: bool
) -> Callable[[Env, LoadFn], Span]:
    match axis:
        case Point(index):
            value = function_of(index)

            def find_point(env: Env, load: LoadFn) -> Span:
                at = value(env, load)
                if 0 <= at < size:
                    return _at(at)
                return _rows([at], size, room)._replace(extent=1, has_axis=False)

            return find_point
        case Slice(start, stop):
            first, end, data = function_of(start), function_of(stop), bool(loads_of(start, stop))
            return lambda env, load: _slice(
                first(env, load), end(env, load), size, room, padded, data)
        case Rows(var, extent, index):
            count, row = function_of(extent), function_of(index)

            def find_rows(env: Env, load: LoadFn) -> Span:
                scope = dict(env)
                rows = []
                for k in range(count(env, load)):
                    scope[var] = k
                    rows.append(row(scope, load))
                return _rows(rows, size, room)

            return find_rows
        case _:
            assert_never(axis)


class _Outside(Exception):
    """An index or slice lies outside the tensor and its padding."""


def _rows(rows: list[int], size: int, room: tuple[int, int]) -> Span:
    if not rows or (min(rows) >= 0 and max(rows) < size):
        if len(rows) == 1:
            return Span(slice(rows[0], rows[0] + 1), _ONE, 1)
        return Span(np.asarray(rows, np.int64), slice(0, len(rows)), len(rows))
    for row in rows:
        if not -room[0] <= row < size + room[1]:
            raise _Outside(row)
    found = np.asarray([k for k, row in enumerate(rows) if 0 <= row < size], np.int64)
    return Span(np.asarray(rows, np.int64)[found], found, len(rows))


def _slice(
    lo: int, hi: int, size: int, room: tuple[int, int], padded: bool, data: bool
) -> Span:
    end = size + room[1] + (data and hi - lo != 1)
    if lo < -room[0] or hi > lo >= end:
        raise _Outside(f"{lo}:{hi}")
    first, last = max(lo, 0), min(hi, size)
    picks = slice(min(first, size), max(first, last) if first < size else size)
    length = picks.stop - picks.start
    if not padded:
        return Span(picks, slice(0, length), length)
    offset = min(max(0, -lo), max(0, hi - lo))
    return Span(picks, slice(offset, offset + length), max(0, hi - lo))
