"""Methods of tiles that are made of other methods, under NumPy's names.

None of them has an op of its own in the tile IR. An unknown name is an error with a hint.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from ..errors import BadDType, BadShape, UnknownName
from ..ir.tensor import DType
from ..public_names import BODY_NAMES
from .numpy_hints import hint_for
from .shapes import normal_axes, normal_axis

_DTYPE_BY_NUMPY_NAME = {
    "float32": DType.f32, "float16": DType.f16, "bfloat16": DType.bf16, "int32": DType.i32,
    "int64": DType.i64, "uint8": DType.u8, "bool": DType.bool_,
}  # fmt: skip


def dtype_of(dtype: object) -> DType:
    """A dtype of `et`, or of NumPy where there is one of the same name."""
    if isinstance(dtype, DType):
        return dtype
    try:
        return _DTYPE_BY_NUMPY_NAME[np.dtype(dtype).name]  # type: ignore[call-overload]
    except (TypeError, KeyError):
        raise BadDType(
            f"cast to {dtype!r}, which is not a dtype",
            hint="dtypes are et.f32, et.bf16, et.f16, et.i32, et.i64, et.u8 and et.bool_",
        ) from None


class TileMethods:
    """The methods that `Tile` inherits."""

    __slots__ = ()

    # ---- conversions ------------------------------------------------------------------------

    def astype(self: Any, dtype: object) -> Any:
        """The same as `cast`."""
        return self.cast(dtype)

    def copy(self: Any) -> Any:
        """A tile with the same elements. An assignment to one does not change the other."""
        return type(self)(self.tracer, self.read())

    # ---- reductions -------------------------------------------------------------------------

    def mean(self: Any, axis: object = None, keepdims: bool = False) -> Any:
        if self.dtype is not DType.f32:
            raise BadDType(f"the mean of a {self.dtype} tile",
                           hint="x.cast(et.f32).mean(axis): nothing becomes a float by itself")
        total = self.sum(axis, keepdims)
        return total / self._count(axis)

    def var(self: Any, axis: object = None, ddof: int = 0, keepdims: bool = False) -> Any:
        """The mean of squared distances from the mean; `ddof` is taken from the count."""
        deviation = self - self.mean(axis, keepdims=True)
        total = (deviation * deviation).sum(axis, keepdims)
        return total / (self._count(axis) - float(ddof))

    def std(self: Any, axis: object = None, ddof: int = 0, keepdims: bool = False) -> Any:
        """The square root of the variance."""
        from .tile_functions import sqrt

        return sqrt(self.var(axis, ddof, keepdims))

    def any(self: Any, axis: object = None, keepdims: bool = False) -> Any:
        """True if some element is not zero; false for no elements."""
        return self._truth().cast(DType.i32).max(axis, keepdims) > 0

    def all(self: Any, axis: object = None, keepdims: bool = False) -> Any:
        """True if no element is zero; true for no elements."""
        return self._truth().cast(DType.i32).min(axis, keepdims) > 0

    def argmax(self: Any, axis: object = None) -> Any:
        """The i32 index of the largest. A tile with several axes needs `axis`."""
        from .tile_functions import argmax

        return argmax(self, self._only_axis("argmax", axis))

    def argmin(self: Any, axis: object = None) -> Any:
        from .tile_functions import argmin

        return argmin(self, self._only_axis("argmin", axis))

    def argsort(self: Any, axis: int = -1) -> Any:
        from .tile_functions import argsort

        return argsort(self, axis)

    def _only_axis(self: Any, what: str, axis: object) -> Any:
        if axis is None and self.ndim != 1:
            raise BadShape(f"{what} of a tile with {self.ndim} axes, without an axis",
                           hint=f"x.{what}(axis=-1), or x.flatten().{what}() over all")
        return 0 if axis is None else axis

    def _truth(self: Any) -> Any:
        return self if self.dtype is DType.bool_ else self != 0

    def _count(self: Any, axis: object) -> Any:
        """The number of elements that a reduction combines, as a divisor for f32."""
        extents = [self.shape[k] for k in normal_axes(axis, self.ndim)]
        known = float(prod(e for e in extents if isinstance(e, int)))
        for e in extents:
            if not isinstance(e, int):
                known = e.cast(DType.f32) * known
        return known

    # ---- shapes -----------------------------------------------------------------------------

    def flatten(self: Any) -> Any:
        return self.reshape(-1)

    ravel = flatten

    def squeeze(self: Any, axis: object = None) -> Any:
        """Drop axes of extent 1: those given, or all."""
        ones = [k for k, e in enumerate(self.shape) if isinstance(e, int) and e == 1]
        drop = ones if axis is None else normal_axes(axis, self.ndim)
        larger = [k for k in drop if k not in ones]
        if larger:
            raise BadShape(
                f"squeeze of axis {larger[0]}, whose extent is {self.shape[larger[0]]}",
                hint="only an axis of extent 1 goes away; x[i] or x.sum(axis) take one",
            )
        return self.reshape(*(e for k, e in enumerate(self.shape) if k not in drop))

    def swapaxes(self: Any, first: int, second: int) -> Any:
        perm = list(range(self.ndim))
        a, b = normal_axis(first, self.ndim), normal_axis(second, self.ndim)
        perm[a], perm[b] = b, a
        return self.transpose(*perm)

    def repeat(self: Any, times: int, axis: object = None) -> Any:
        """Each entry of an axis `times` times in a row; without an axis, of the flattened tile."""
        from .composite_functions import repeat

        return repeat(self, times, axis)

    # ---- arithmetic -------------------------------------------------------------------------

    def clip(self: Any, low: object = None, high: object = None) -> Any:
        from .composite_functions import clip

        return clip(self, low, high)

    def dot(self: Any, other: object) -> Any:
        from .composite_functions import dot

        return dot(self, other)

    # ---- names that tiles do not have -------------------------------------------------------

    def __getattr__(self, name: str) -> NoReturn:
        """Python itself asks for names with underscores; those are plainly absent."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnknownName(f"a tile has no '{name}'", hint=_hint(name, type(self)))


def method_names(kind: type) -> frozenset[str]:
    return frozenset(n for n in dir(kind) if not n.startswith("_"))


def _hint(name: str, kind: type) -> str | None:
    return hint_for(name, method_names(kind), "x", BODY_NAMES)


def axis_slices(rank: int, axis: int, items: Sequence[object]) -> list[tuple[object, ...]]:
    """One key for each of `items` on `axis`; the other axes are whole."""
    return [(slice(None),) * axis + (item,) + (slice(None),) * (rank - axis - 1) for item in items]
