"""Tile arithmetic: the order and the roundings of every operation.

Element-wise functions are in ir/elementwise.py. Functions take and return arrays of tile dtypes.
Back ends give the same bits, except in functions that are not `exact`. Callers silence NumPy's
warnings, because IEEE results are intended.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.elementwise import FUNCTIONS
from ..ir.tensor import DType

Array = npt.NDArray[Any]
LANES = 16
_STEPS_AT_ONCE = 64  # of a product; their elements fit the caches of a core


def elementwise(name: str, *operands: Array) -> Array:
    return np.asarray(FUNCTIONS[name].meaning(*operands))


def cast(x: Array, dtype: DType) -> Array:
    """Float to integer truncates, saturates, and gives 0 for NaN; u8 goes through i32. Integers
    wrap. Storage dtypes round to nearest even and return in their tile dtype."""
    if dtype is DType.bool_:
        return np.asarray(x != 0)
    if dtype.is_int and x.dtype.kind == "f":
        x = _truncate(x, np.int64 if dtype is DType.i64 else np.int32)
    return from_storage(to_storage(x, dtype), dtype)


def _truncate(x: Array, kind: type[np.signedinteger[Any]]) -> Array:
    info = np.iinfo(kind)
    exact = np.trunc(np.asarray(x, np.float64))
    low, high = exact <= float(info.min), exact >= float(info.max)
    inside = np.where(low | high | (exact != exact), 0.0, exact).astype(kind)
    return np.where(low, kind(info.min), np.where(high, kind(info.max), inside))


def to_storage(x: Array, dtype: DType) -> Array:
    return np.asarray(x).astype(dtype.numpy, copy=False)


def from_storage(x: Array, dtype: DType) -> Array:
    found = np.asarray(x)
    kind = dtype.tile_dtype.numpy
    return found if found.dtype is kind else found.astype(kind, copy=False)


def lane_sum(x: Array, axis: int) -> Array:
    """Element i goes to lane i % 16. Each lane adds in index order from 0; then 8, 4, 2, 1."""
    rows = np.moveaxis(x, axis, 0)
    lanes = np.zeros((LANES, *rows.shape[1:]), x.dtype)
    for start in range(0, rows.shape[0], LANES):
        group = rows[start : start + LANES]
        lanes[: len(group)] += group
    width = LANES
    while width > 1:
        width //= 2
        lanes = lanes[:width] + lanes[width:]
    return np.asarray(lanes[0])


def extreme(op: str, x: Array, axis: int) -> Array:
    """max or min in index order. The first of equal values and the first NaN win. An empty axis
    gives the identity."""
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
    # Adding zero turns a leading -0.0 into 0.0, as in a sum that starts at 0.
    return np.asarray(np.add.accumulate(x, axis=axis, dtype=x.dtype) + x.dtype.type(0))


def histogram(index: Array, weights: list[Array], bins: int) -> Array:
    """Sums of weights by index, modulo 2^32. Indices outside the bins are ignored."""
    inside = (index >= 0) & (index < bins)
    out = np.zeros((len(weights), bins), np.int64)
    for row, w in zip(out, weights, strict=True):
        np.add.at(row, index[inside], w[inside])
    return out.astype(np.int32)


def matmul(a: Array, b: Array) -> Array:
    """k ascending. Each step is one fused multiply-add in f32; integers wrap."""
    acc = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    if a.dtype.kind != "f":
        return np.asarray(acc + a @ b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    for first in range(0, a.shape[1], _STEPS_AT_ONCE):
        some = slice(first, first + _STEPS_AT_ONCE)
        products = wide_a.T[some, :, None] * wide_b[some, None, :]
        rounded = products.astype(np.float32)
        if (rounded == products).all():  # products of bf16 and f16 are exact, so an add rounds once
            acc = np.add.accumulate(np.concatenate([acc[None], rounded]), axis=0)[-1]
        else:
            for product in products:
                acc = _add_once(product, acc)
    return acc


def _add_once(product: Array, acc: Array) -> Array:
    """product + acc, rounded once to f32. A product of two f32 is exact in f64. The f64 sum is
    rounded to odd, so that the second rounding is right (53 >= 24 + 2 bits)."""
    exact = acc.astype(np.float64)
    total = product + exact
    back = total - product
    error = (product - (total - back)) + (exact - back)
    bits = total.view(np.int64)
    inexact = ((error > 0) | (error < 0)) & ((bits & 1) == 0)
    if inexact.any():
        step = np.where((error > 0) == (total > 0), 1, -1)
        total = np.where(inexact, bits + step, bits).view(np.float64)
    return total.astype(np.float32)


def descending(x: Array) -> Array:
    """Indices that sort the last axis from large to small. Ties go by index; NaN is smallest."""
    # Sorting puts NaN last. Inverting an integer reverses the order without overflow.
    negated = np.negative(x) if x.dtype.kind == "f" else np.invert(x)
    return np.argsort(negated, axis=-1, kind="stable")
