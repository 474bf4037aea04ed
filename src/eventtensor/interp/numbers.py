"""The fixed meaning of tile arithmetic: every order and every rounding is spelled out here, and for
element-wise functions in ir/elementwise.py.

Functions take and give arrays of tile dtypes; a back end agrees with them bit for bit except in
functions that are not `exact`. Callers silence NumPy's warnings, since IEEE results are meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.elementwise import FUNCTIONS
from ..ir.tensor import DType

Array = npt.NDArray[Any]
LANES = 16
_TOGETHER = 64  # steps of a product, whose numbers fit the caches of a core


def elementwise(name: str, *operands: Array) -> Array:
    return np.asarray(FUNCTIONS[name].meaning(*operands))


def cast(x: Array, dtype: DType) -> Array:
    """Float to integer truncates, saturates, and makes 0 of NaN (to u8 through i32); integers wrap;
    storage dtypes round to nearest even and come back as their tile dtype."""
    if dtype is DType.bool_:
        return np.asarray(x != 0)
    if dtype.is_int and x.dtype.kind == "f":
        x = _truncate(x, np.int64 if dtype is DType.i64 else np.int32)
    return from_storage(to_storage(x, dtype), dtype)


def _truncate(x: Array, kind: type[np.signedinteger[Any]]) -> Array:
    info = np.iinfo(kind)
    wide = np.trunc(np.asarray(x, np.float64))
    low, high = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(low | high | (wide != wide), 0.0, wide).astype(kind)
    return np.where(low, kind(info.min), np.where(high, kind(info.max), inside))


def to_storage(x: Array, dtype: DType) -> Array:
    return np.asarray(x).astype(dtype.numpy, copy=False)


def from_storage(x: Array, dtype: DType) -> Array:
    found = np.asarray(x)
    kind = dtype.tile_dtype.numpy
    return found if found.dtype is kind else found.astype(kind, copy=False)


def lane_sum(x: Array, axis: int) -> Array:
    """Element i goes to lane i % 16; each lane adds in index order from 0; then 8, 4, 2, 1."""
    rows = np.moveaxis(x, axis, 0)
    lanes = np.zeros((LANES, *rows.shape[1:]), x.dtype)
    for start in range(0, rows.shape[0], LANES):
        chunk = rows[start : start + LANES]
        lanes[: len(chunk)] += chunk
    width = LANES
    while width > 1:
        width //= 2
        lanes = lanes[:width] + lanes[width:]
    return np.asarray(lanes[0])


def extreme(op: str, x: Array, axis: int) -> Array:
    """max or min in index order: the first of equal values stays, the first NaN wins. An empty
    axis gives the identity."""
    if x.shape[axis] == 0:
        shape = tuple(s for k, s in enumerate(x.shape) if k != axis)
        return np.full(shape, _identity(op, x.dtype), x.dtype)
    if x.dtype.kind != "f":
        return np.asarray(np.maximum.reduce(x, axis) if op == "max" else np.minimum.reduce(x, axis))
    pick = np.argmax(x, axis=axis) if op == "max" else np.argmin(x, axis=axis)
    found = np.take_along_axis(x, np.expand_dims(pick, axis), axis=axis)
    return np.squeeze(found, axis=axis)


def _identity(op: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return -np.inf if op == "max" else np.inf
    if dtype.kind == "b":
        return op == "min"
    info = np.iinfo(dtype)
    return info.min if op == "max" else info.max


def scan(op: str, x: Array, axis: int) -> Array:
    if op == "prod":
        return np.asarray(np.multiply.accumulate(x, axis=axis, dtype=x.dtype))
    # Adding zero makes a leading -0.0 what a sum that starts at 0 gives.
    return np.asarray(np.add.accumulate(x, axis=axis, dtype=x.dtype) + x.dtype.type(0))


def histogram(index: Array, weights: list[Array], bins: int) -> Array:
    """Sums of weights by index, modulo 2^32; indices that are no bin are left out."""
    inside = (index >= 0) & (index < bins)
    out = np.zeros((len(weights), bins), np.int64)
    for row, w in zip(out, weights, strict=True):
        np.add.at(row, index[inside], w[inside])
    return out.astype(np.int32)


def matmul(a: Array, b: Array) -> Array:
    """k ascending; each step is one fused multiply-add in f32 (integers wrap)."""
    acc = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    if a.dtype.kind != "f":
        return np.asarray(acc + a @ b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    for first in range(0, a.shape[1], _TOGETHER):
        some = slice(first, first + _TOGETHER)
        products = wide_a.T[some, :, None] * wide_b[some, None, :]
        rounded = products.astype(np.float32)
        if (rounded == products).all():  # as of bf16 and f16: then an add rounds once by itself
            acc = np.add.accumulate(np.concatenate([acc[None], rounded]), axis=0)[-1]
        else:
            for product in products:
                acc = _add_once(product, acc)
    return acc


def _add_once(product: Array, acc: Array) -> Array:
    """product + acc rounded once to f32. A product of two f32 is exact in f64; the f64 sum is
    rounded to odd, which makes the second rounding right (53 >= 24 + 2 bits)."""
    wide = acc.astype(np.float64)
    total = product + wide
    back = total - product
    error = (product - (total - back)) + (wide - back)
    bits = total.view(np.int64)
    inexact = ((error > 0) | (error < 0)) & ((bits & 1) == 0)
    if inexact.any():
        step = np.where((error > 0) == (total > 0), 1, -1)
        total = np.where(inexact, bits + step, bits).view(np.float64)
    return total.astype(np.float32)


def descending(x: Array) -> Array:
    """Indices that sort the last axis from large to small; ties by index; NaN is smallest."""
    # Sorting puts NaN last; inverting an integer reverses the order without overflow.
    turned = np.negative(x) if x.dtype.kind == "f" else np.invert(x)
    return np.argsort(turned, axis=-1, kind="stable")
