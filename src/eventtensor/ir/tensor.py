"""Dtypes, tensors, and the regions of tensors that tasks touch.

A region is a map from coordinates to elements. What a task does with it is not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property
from typing import Any, assert_never

import numpy as np

from .expr import Const, Min, Node, add, maximum, minimum, mul, text
from .walk import loads_of


class DType(Enum):
    """The storage of elements. Tiles compute in `tile_dtype`."""

    f32 = "f32"
    bf16 = "bf16"
    f16 = "f16"
    i32 = "i32"
    i64 = "i64"
    u8 = "u8"
    bool_ = "bool"

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        return _bfloat16() if self is DType.bf16 else _NUMPY[self]

    @property
    def size(self) -> int:
        return int(self.numpy.itemsize)

    @property
    def tagged_bytes(self) -> int:
        """Bytes of a tagged element of at most four bytes (device/cuda/sync/tagged.cuh)."""
        return 4 if self.size <= 2 else 8

    @cached_property
    def tile_dtype(self) -> DType:
        """The dtype of a tile loaded from this storage: bf16 and f16 load as f32, u8 as i32."""
        match self:
            case DType.bf16 | DType.f16:
                return DType.f32
            case DType.u8:
                return DType.i32
            case _:
                return self

    @property
    def is_float(self) -> bool:
        return self in (DType.f32, DType.bf16, DType.f16)

    @property
    def is_int(self) -> bool:
        return self in (DType.i32, DType.i64, DType.u8)

    def __str__(self) -> str:
        return self.value


_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.f32: np.dtype(np.float32),
    DType.f16: np.dtype(np.float16),
    DType.i32: np.dtype(np.int32),
    DType.i64: np.dtype(np.int64),
    DType.u8: np.dtype(np.uint8),
    DType.bool_: np.dtype(np.bool_),
}


@cache
def _bfloat16() -> np.dtype[Any]:
    """NumPy's bf16. Without ml_dtypes it is a dtype of the same bits, which a launch can take."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype([("bfloat16", np.uint16)])
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


class Role(Enum):
    """Who writes a tensor, and how long it lives. No task writes input and weight; state outlives
    a launch."""

    input = "input"
    weight = "weight"
    state = "state"
    output = "output"
    scratch = "scratch"

    @property
    def read_only(self) -> bool:
        return self in (Role.input, Role.weight)

    @property
    def starts_defined(self) -> bool:
        """True if elements may be read before this launch writes them."""
        return self in (Role.input, Role.weight, Role.state)


@dataclass(frozen=True, slots=True)
class Tensor:
    """`bound` (inclusive), `monotone` (along the last axis) and `distinct` (over these axes, the
    others held fixed) are facts about run-time values: axioms of the proof, checked in debug. An
    output that is `partial` may have elements that no task writes."""

    name: str
    role: Role
    shape: tuple[Node, ...]
    dtype: DType
    bound: tuple[Node, Node] | None = None
    monotone: bool = False
    distinct: tuple[int, ...] = ()
    partial: bool = False
    place: str = field(default="<unknown>", compare=False, repr=False)


# ---- regions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """One index; the tile has no axis for it."""

    index: Node


@dataclass(frozen=True, slots=True)
class Slice:
    """start..stop, clipped at the tensor's upper end. It is not clipped if the region pads the
    axis, or if the slice is known to end in the tensor (`is_in_bounds`, ir/in_bounds.py)."""

    start: Node
    stop: Node
    is_in_bounds: bool = field(default=False, compare=False)

    @property
    def nominal(self) -> Node:
        """The length before clipping. A slice that ends at a minimum has the lesser of two lengths,
        because each of them may be bounded where the minimum is not."""
        if isinstance(self.stop, Min):
            return minimum(self._up_to(self.stop.a), self._up_to(self.stop.b))
        return self._up_to(self.stop)

    def _up_to(self, end: Node) -> Node:
        return add(end, mul(Const(-1), self.start))


@dataclass(frozen=True, slots=True)
class Rows:
    """Gathered rows: a tile axis of `extent`, whose entry `var` lies at `index`."""

    var: str
    extent: Node
    index: Node


Axis = Point | Slice | Rows


@dataclass(frozen=True, slots=True, eq=False)
class Pad:
    """How far outside the tensor a region may start on each axis, and the value of elements that
    are not there (nan equals nan). The `clipped` axes have no padding."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    value: float
    clipped: frozenset[int] = frozenset()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pad) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.lo, self.hi, repr(self.value), self.clipped


@dataclass(frozen=True, slots=True)
class Region:
    """A box or gathered rows of a tensor or event tensor, over the coordinates of a task."""

    tensor: str
    axes: tuple[Axis, ...]
    pad: Pad | None = None

    def __str__(self) -> str:
        inner = ", ".join(axis_text(a) for a in self.axes)
        if self.pad is None:
            return f"{self.tensor}[{inner}]"
        lo, hi = (
            [v if self.pads_axis(k) else None for k, v in enumerate(ends)]
            for ends in (self.pad.lo, self.pad.hi)
        )
        return f"{self.tensor}.padded({lo}, {hi}, {self.pad.value!r})[{inner}]"

    def pads_axis(self, k: int) -> bool:
        """True if axis k is padded where it overhangs; otherwise it is clipped."""
        return self.pad is not None and k not in self.pad.clipped


def axis_text(axis: Axis) -> str:
    match axis:
        case Point(index):
            return text(index)
        case Slice(start, stop):
            return f"{text(start)}:{text(stop)}"
        case Rows(var, extent, index):
            return f"rows({var}, {text(extent)}, {text(index)})"
        case _:
            assert_never(axis)


def extent(axis: Axis, size: Node, padded: bool) -> Node | None:
    """The run-time extent of a tile axis: its nominal length, clipped. None for a point."""
    match axis:
        case Point():
            return None
        case Rows(_, n, _):
            return n
        case Slice(start, stop):
            nominal = axis.nominal
            if (
                padded
                or axis.is_in_bounds
                or nominal == Const(1)
                or (start == Const(0) and stop == size)
            ):
                return nominal
            left = add(size, mul(Const(-1), start))
            clipped = minimum(nominal, left)
            return maximum(clipped, 0) if _may_be_empty(nominal) else clipped
        case _:
            assert_never(axis)


def _may_be_empty(nominal: Node) -> bool:
    return not (isinstance(nominal, Const) and nominal.value > 0)


def tile_shape(region: Region, tensor: Tensor) -> tuple[Node, ...]:
    """The run-time extents of a region's tile."""
    found = [
        extent(a, s, region.pads_axis(k))
        for k, (a, s) in enumerate(zip(region.axes, tensor.shape, strict=True))
    ]
    return tuple(e for e in found if e is not None)


def apart(a: Region, b: Region) -> bool:
    """True if a coordinate differs, so that two regions of a tensor have no common element."""
    for x, y in zip(a.axes, b.axes, strict=True):
        if isinstance(x, Point) and isinstance(y, Point):
            between = add(x.index, mul(Const(-1), y.index))
            if isinstance(between, Const) and between.value != 0:
                return True
    return False


def axis_exprs(axis: Axis) -> tuple[Node, ...]:
    match axis:
        case Point(index):
            return (index,)
        case Slice(start, stop):
            return (start, stop)
        case Rows(_, n, index):
            return (n, index)
        case _:
            assert_never(axis)


def region_exprs(region: Region) -> tuple[Node, ...]:
    return tuple(e for a in region.axes for e in axis_exprs(a))


def is_data_dependent(region: Region) -> bool:
    """True if run-time data decides where the region lies."""
    return bool(loads_of(*region_exprs(region)))
