"""Functions of task bodies that are made of other operations, under NumPy's names.

None of them has an op of its own in the tile IR. Those that do are in lang/tile_functions.py, and
methods of tiles in lang/tile_methods.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..errors import BadDType, BadShape, NotTraceable
from ..ir.tensor import DType
from . import tile_functions as f
from . import values
from .shapes import index_expr, normal_axis
from .symbolic_tile import Tile, as_tile, lift
from .tile_methods import axis_slices
from .tracer import current

# ---- reductions ----------------------------------------------------------------------------


def sum(x: object, axis: object = None, keepdims: bool = False) -> Any:
    return _require_tile(x, "sum").sum(axis, keepdims)


def mean(x: object, axis: object = None, keepdims: bool = False) -> Any:
    return _require_tile(x, "mean").mean(axis, keepdims)


def var(x: object, axis: object = None, ddof: int = 0, keepdims: bool = False) -> Any:
    return _require_tile(x, "var").var(axis, ddof, keepdims)


def std(x: object, axis: object = None, ddof: int = 0, keepdims: bool = False) -> Any:
    return _require_tile(x, "std").std(axis, ddof, keepdims)


def any(x: object, axis: object = None, keepdims: bool = False) -> Any:
    return _require_tile(x, "any").any(axis, keepdims)


def all(x: object, axis: object = None, keepdims: bool = False) -> Any:
    return _require_tile(x, "all").all(axis, keepdims)


def _require_tile(x: object, what: str) -> Tile:
    if isinstance(x, tuple | list):
        raise NotTraceable(f"{what} of a Python {type(x).__name__}",
                           hint="et.stack([..]) makes one tile of several")
    if not isinstance(x, Tile):
        raise NotTraceable(f"{what} of {x!r}, which is not a tile")
    return x


# ---- element by element --------------------------------------------------------------------


def clip(x: object, low: object = None, high: object = None) -> Tile:
    """x, but not below `low` nor above `high`; None is no limit."""
    out = as_tile(x)
    if low is not None:
        out = f.maximum(out, low)
    if high is not None:
        out = f.minimum(out, high)
    return out


def square(x: object) -> Tile:
    out = as_tile(x)
    return out * out


# ---- makers --------------------------------------------------------------------------------


def ones(shape: object, dtype: DType = DType.f32) -> Tile:
    return f.full(shape, True if dtype is DType.bool_ else 1, dtype)


def arange(
    start: object, stop: object = None, step: int = 1, dtype: DType = DType.i32
) -> Tile:
    """start, start + step, .. before stop; `arange(n)` is `iota(n)`."""
    first: Any = 0 if stop is None else start
    last: Any = start if stop is None else stop
    if isinstance(first, float) or isinstance(last, float) or isinstance(step, float):
        raise BadDType("arange of floats", hint="start + et.iota(n).cast(et.f32) * step")
    if isinstance(step, bool) or not isinstance(step, int) or step == 0:
        raise BadShape(f"arange with the step {step!r}",
                       hint="a step is a Python integer other than 0")
    distance = last - first if step > 0 else first - last
    size = abs(step)
    count = distance if size == 1 else (distance + size - 1) // size
    out = f.iota(max(count, 0) if isinstance(count, int) else count)
    if step != 1:
        out = out * step
    if not isinstance(first, int) or first != 0:
        out = out + first
    return out.cast(dtype)


def zeros_like(x: object, dtype: DType | None = None) -> Tile:
    like = _require_tile(x, "zeros_like")
    return f.zeros(like.shape, like.dtype if dtype is None else dtype)


def ones_like(x: object, dtype: DType | None = None) -> Tile:
    like = _require_tile(x, "ones_like")
    return ones(like.shape, like.dtype if dtype is None else dtype)


def full_like(x: object, value: object, dtype: DType | None = None) -> Tile:
    like = _require_tile(x, "full_like")
    return f.full(like.shape, value, like.dtype if dtype is None else dtype)


# ---- joining and taking apart --------------------------------------------------------------


def concatenate(tiles: Sequence[object], axis: int = 0) -> Tile:
    """The same as `concat`."""
    return f.concat(tiles, axis)


def stack(tiles: Sequence[object], axis: int = 0) -> Tile:
    """Tiles of one shape, along a new axis."""
    if not isinstance(tiles, tuple | list) or not tiles:
        raise BadShape("stack needs a list of tiles")
    xs = [as_tile(t) for t in tiles]
    at = normal_axis(axis, xs[0].ndim + 1)
    return f.concat([expand_dims(x, at) for x in xs], axis=at)


def expand_dims(x: object, axis: int) -> Tile:
    tile = _require_tile(x, "expand_dims")
    at = normal_axis(axis, tile.ndim + 1)
    return tile[(slice(None),) * at + (None,)]


def split(x: object, sections: int | Sequence[int], axis: int = 0) -> list[Tile]:
    """Equal parts of an axis, or parts that begin at the given indices."""
    tile = _require_tile(x, "split")
    at = normal_axis(axis, tile.ndim)
    size = tile.shape[at]
    if isinstance(sections, int):
        if not isinstance(size, int) or sections < 1 or size % sections:
            raise BadShape(f"split of an axis of extent {size} into {sections}",
                           hint="the extent is a constant that the number of parts divides")
        cuts: list[Any] = [k * (size // sections) for k in range(sections + 1)]
    else:
        cuts = [0, *sections, size]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    return [tile[key] for key in axis_slices(tile.ndim, at, parts)]


def repeat(x: object, times: int, axis: object = None) -> Tile:
    """Each entry of an axis `times` times in a row; without an axis, of the flattened tile."""
    tile = _require_tile(x, "repeat")
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise BadShape(f"repeat of {times!r} times", hint="times is a Python integer, 1 or more")
    if axis is None:
        tile, axis = tile.flatten(), 0
    at = normal_axis(axis, tile.ndim)
    before, size, after = tile.shape[:at], tile.shape[at], tile.shape[at + 1 :]
    tr, column = current(), expand_dims(tile, at + 1)
    shape = tuple(index_expr(e) for e in (*before, size, times, *after))
    spread = Tile(tr, values.broadcast(tr, column.read(), shape))
    return spread.reshape(*before, size * times, *after)


def flip(x: object, axis: object = None) -> Tile:
    """The entries of an axis (or of all) in reverse."""
    tile = _require_tile(x, "flip")
    axes = range(tile.ndim) if axis is None else [normal_axis(axis, tile.ndim)]
    for k in axes:
        (key,) = axis_slices(tile.ndim, k, [slice(None, None, -1)])
        tile = tile[key]
    return tile


# ---- products ------------------------------------------------------------------------------


def dot(a: object, b: object) -> Any:
    """The inner product of two vectors; for other tiles `a @ b`."""
    return _require_tile(a, "dot") @ b


def outer(a: object, b: object) -> Any:
    left, right = _require_tile(a, "outer").flatten(), _require_tile(b, "outer").flatten()
    return left[:, None] * right[None, :]


def matmul(a: Tile, other: object) -> Any:
    """`a @ other` by NumPy's rules: a vector is a row or a column, leading axes are a batch."""
    b = other if isinstance(other, Tile) else Tile(a.tracer, lift(a.tracer, other, a.dtype))
    if not a.ndim or not b.ndim:
        raise BadShape("@ of a tile without axes", hint="multiply by a number with *")
    if a.ndim == b.ndim == 1:
        return (a * b).sum()
    if a.ndim == 1:
        return matmul(a[None, :], b)[..., 0, :]
    if b.ndim == 1:
        return matmul(a, b[:, None])[..., 0]
    if a.ndim == b.ndim == 2:
        return Tile(a.tracer, values.matmul(a.tracer, a.read(), b.read()))
    if b.ndim == 2 and a.dtype is DType.f32:
        rows = a.reshape(-1, a.shape[-1]) @ b
        return rows.reshape(*a.shape[:-1], b.shape[-1])
    if a.ndim == 2 and not (isinstance(b.shape[0], int) and b.shape[0] <= _MAX_BATCH):
        return (b.swapaxes(-1, -2) @ a.T).swapaxes(-1, -2)
    return _batched_matmul(a, b)


# A larger batch would unroll too far: a body loops over it with et.range.
_MAX_BATCH = 64


def _batched_matmul(a: Tile, b: Tile) -> Tile:
    """One product for each index of the first leading axis; an extent of 1 repeats."""
    rank = max(a.ndim, b.ndim)
    first, second = (x.shape[0] if x.ndim == rank else 1 for x in (a, b))
    if not isinstance(first, int) or not isinstance(second, int):
        raise BadShape(f"@ over a leading axis of extent {first} and {second}",
                       hint="leading axes are constants: loop over it with et.range, give it an"
                       " axis of the grid, or (x[..., None] * y[..., None, :, :]).sum(axis=-2)")
    count = max(first, second)
    if count > _MAX_BATCH or (first != second and 1 not in (first, second)):
        raise BadShape(
            f"@ over leading axes of extents {first} and {second}",
            hint=f"they are equal or 1, and at most {_MAX_BATCH}; loop with et.range",
        )
    products = [_batch_entry(a, rank, k) @ _batch_entry(b, rank, k) for k in range(count)]
    return stack(products) if count > 1 else products[0][None]


def _batch_entry(x: Tile, rank: int, k: int) -> Tile:
    if x.ndim < rank:
        return x
    return x[k if x.shape[0] != 1 else 0]
