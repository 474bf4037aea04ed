"""Handles of tensors and event tensors, which give regions when they are indexed.

One element of an integer tensor is an index expression too: a run-time load. Errors that hold for
every size are raised here; the proof decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ..errors import BadCall, BadEvent, BadRegion, NonAffine
from ..ir.expr import Const, Load, Node, Var, add, wrap
from ..ir.in_bounds import mark_in_bounds
from ..ir.program import EventTensor, GridAxis
from ..ir.tensor import Axis, DType, Pad, Point, Region, Rows, Slice, Tensor, extent
from .index_ops import IndexOps, is_index, reject_products


@dataclass(frozen=True, eq=False)
class TensorRef:
    """A tensor of the program `owner`; index it to name a region."""

    owner: object
    tensor: Tensor

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def shape(self) -> tuple[Node, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    def __getitem__(self, key: object) -> RegionRef:
        return RegionRef(self.owner, self.tensor, Region(self.name, _axes(self, key, None)))

    def __iter__(self) -> Iterator[object]:
        raise BadRegion(f"tensor {self.name} cannot be iterated")

    def whole(self) -> RegionRef:
        return self[tuple(slice(None) for _ in self.shape)]

    def padded(
        self, lo: int | tuple[int, ...], hi: int | tuple[int, ...], value: float = 0.0
    ) -> PaddedRef:
        """Regions may start up to `lo` below 0, or up to `hi` beyond the end, on each axis. The
        tile keeps its shape, and elements outside the tensor are `value`. An axis to which tuples
        give 0 and 0 has no padding, and is clipped as in other regions."""
        pad = Pad(_overhang(self, lo), _overhang(self, hi), _pad_value(self, value))
        each = not (isinstance(lo, int) and isinstance(hi, int))
        bare = [k for k in range(len(pad.lo)) if each and pad.lo[k] == pad.hi[k] == 0]
        return PaddedRef(self, replace(pad, clipped=frozenset(bare)))


@dataclass(frozen=True, eq=False)
class PaddedRef:
    """A tensor with a halo. A region of it keeps its nominal shape on all axes that are not
    `pad.clipped`."""

    base: TensorRef
    pad: Pad

    def __getitem__(self, key: object) -> RegionRef:
        axes, sizes = _axes(self.base, key, self.pad), self.base.shape
        # An axis that cannot overhang is the same with and without padding.
        clipped = frozenset(k for k in self.pad.clipped
                            if extent(axes[k], sizes[k], True) != extent(axes[k], sizes[k], False))
        region = Region(self.base.name, axes, replace(self.pad, clipped=clipped))
        return RegionRef(self.base.owner, self.base.tensor, region)


@dataclass(frozen=True, eq=False)
class EventRef:
    """An event tensor of the program `owner`; index it in `waits=` and `notifies=`."""

    owner: object
    event: EventTensor

    @property
    def name(self) -> str:
        return self.event.name

    @property
    def shape(self) -> tuple[Node, ...]:
        return self.event.shape

    def __getitem__(self, key: object) -> RegionRef:
        return RegionRef(self.owner, self.event, Region(self.name, _axes(self, key, None)))

    def __iter__(self) -> Iterator[object]:
        raise BadEvent(f"event tensor {self.name} cannot be iterated")

    def whole(self) -> RegionRef:
        return self[tuple(slice(None) for _ in self.shape)]


@dataclass(frozen=True, eq=False)
class RegionRef(IndexOps):
    """A region, its tensor or event tensor, and the program that owns the tensor."""

    owner: object
    target: Tensor | EventTensor
    region: Region

    def as_expr(self) -> Node:
        """One element of an integer tensor, as a run-time integer."""
        if not isinstance(self.target, Tensor):
            raise BadEvent(f"the cell '{self.region}' is not a number that can be computed with")
        if not self.target.dtype.is_int:
            raise BadRegion(
                f"'{self.region}' is {self.target.dtype}: only elements of integer tensors can be"
                " used in indices, extents and counts"
            )
        if self.region.pad is not None or not all(
            isinstance(a, Point) for a in self.region.axes
        ):
            raise BadRegion(f"'{self.region}' is not one element, so it is not an integer")
        return Load(self.region.tensor, tuple(a.index for a in self.region.axes))  # type: ignore[union-attr]

    def mark_in_bounds(self, grid: tuple[GridAxis, ...]) -> RegionRef:
        """The region of a call with this grid, with its slices marked that lie in the tensor."""
        if not isinstance(self.target, Tensor):
            return self
        return replace(self, region=mark_in_bounds(self.region, self.target, grid))

    def __eq__(self, other: object) -> Any:
        raise NonAffine(
            f"'{self.region}' cannot be compared with ==", hint="use et.equal(a, b) in facts"
        )

    __hash__ = object.__hash__

    def __getitem__(self, key: object) -> NoReturn:
        raise BadRegion(f"'{self.region}' is indexed twice", hint="give all indices in one [...]")

    def __iter__(self) -> Iterator[object]:
        raise BadRegion(f"the region '{self.region}' cannot be iterated")

    def __str__(self) -> str:
        return str(self.region)


def _overhang(ref: TensorRef, given: int | tuple[int, ...]) -> tuple[int, ...]:
    found = (given,) * len(ref.shape) if isinstance(given, int) else tuple(given)
    if not found or len(found) != len(ref.shape):
        raise BadRegion(f"padding {found} does not fit {ref.name}, which has {len(ref.shape)} axes")
    if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in found):
        raise BadRegion(f"padding {found} of {ref.name} must be integers, 0 or more")
    return found


def _pad_value(ref: TensorRef, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRegion(f"the padding value {value!r} of {ref.name} is not a number")
    if not ref.dtype.is_float and not float(value).is_integer():
        raise BadRegion(f"the padding value {value!r} does not fit {ref.name}: {ref.dtype}")
    return float(value)


def _axes(ref: TensorRef | EventRef, key: object, pad: Pad | None) -> tuple[Axis, ...]:
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) != len(ref.shape):
        raise BadRegion(
            f"{ref.name} has {len(ref.shape)} axes and is indexed with {len(keys)}"
        )
    lows = (0,) * len(keys) if pad is None else pad.lo
    highs = (0,) * len(keys) if pad is None else pad.hi
    axes = []
    for k, item in enumerate(keys):
        axis = _axis(ref, item, k, ref.shape[k])
        _check_constants(ref, axis, ref.shape[k], lows[k], highs[k])
        axes.append(axis)
    return tuple(axes)


def _axis(ref: TensorRef | EventRef, item: object, k: int, size: Node) -> Axis:
    if isinstance(item, slice):
        if item.step is not None:
            raise BadRegion(f"a slice of {ref.name} has a step", hint="slices have no step")
        start = Const(0) if item.start is None else _index(ref, item.start)
        stop = size if item.stop is None else _index(ref, item.stop)
        return Slice(start, stop)
    if isinstance(item, TensorRef):
        item = item.whole()
    if isinstance(item, RegionRef) and not _is_point(item.region):
        return _rows(ref, item, k)
    return Point(_index(ref, item))


def _is_point(region: Region) -> bool:
    return all(isinstance(a, Point) for a in region.axes)


def _index(ref: TensorRef | EventRef, value: object) -> Node:
    if not is_index(value):
        raise BadRegion(f"{ref.name} is indexed with {value!r}, which is not an integer")
    if isinstance(value, RegionRef):
        _check_owner(ref, value)
    e = wrap(value)  # type: ignore[arg-type]
    reject_products(f"an index of {ref.name}", e)
    return e


def _check_owner(ref: TensorRef | EventRef, item: RegionRef) -> None:
    if item.owner is not ref.owner:
        raise BadCall(f"{ref.name} is indexed by '{item}', a tensor of another program")


def _rows(ref: TensorRef | EventRef, item: RegionRef, k: int) -> Rows:
    """Rows gathered by a one-dimensional slice of an integer tensor."""
    _check_owner(ref, item)
    if not isinstance(item.target, Tensor) or not item.target.dtype.is_int:
        raise BadRegion(f"'{item}' indexes {ref.name} but is not of an integer tensor")
    sliced = [n for n, a in enumerate(item.region.axes) if not isinstance(a, Point)]
    if len(sliced) != 1 or item.region.pad is not None:
        raise BadRegion(f"'{item}' indexes {ref.name} but is not a one-dimensional slice")
    axis = item.region.axes[sliced[0]]
    if not isinstance(axis, Slice):
        raise BadRegion(f"'{item}' indexes {ref.name} but is itself gathered")
    n = extent(axis, item.target.shape[sliced[0]], padded=False)
    assert n is not None
    var = f"_r{k}"
    index = [
        add(axis.start, Var(var)) if m == sliced[0] else _point(a)
        for m, a in enumerate(item.region.axes)
    ]
    return Rows(var, n, Load(item.target.name, tuple(index)))


def _point(axis: Axis) -> Node:
    assert isinstance(axis, Point)
    return axis.index


def _check_constants(
    ref: TensorRef | EventRef, axis: Axis, size: Node, lo: int, hi: int
) -> None:
    """Refuse what is wrong for every size. The proof decides the rest."""
    if isinstance(axis, Rows):
        return
    start = axis.index if isinstance(axis, Point) else axis.start
    if isinstance(start, Const):
        if start.value < -lo:
            raise BadRegion(f"{ref.name} is indexed from {start.value}, below its lower end")
        if isinstance(size, Const) and start.value >= size.value + hi:
            raise BadRegion(f"{ref.name} is indexed from {start.value}, past its extent {size}")
    if isinstance(axis, Slice):
        n = axis.nominal
        if isinstance(n, Const) and n.value <= 0:
            raise BadRegion(f"the slice {axis.start}:{axis.stop} of {ref.name} is empty")
