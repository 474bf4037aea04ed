"""Slices of a tile with a step, such as `x[::2]` and `x[::-1]`.

Where the step divides the extent, a slice is a reshape and one index. Otherwise it is a gather.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BadShape
from ..ir.expr import Const
from ..ir.tensor import DType
from . import values
from .shapes import expand_key
from .tracer import current

if TYPE_CHECKING:
    from .symbolic_tile import Tile


def has_step(key: object) -> bool:
    keys = key if isinstance(key, tuple) else (key,)
    return any(isinstance(k, slice) and k.step is not None and k.step != 1 for k in keys)


def strided_slice(tile: Tile, key: object) -> Tile:
    """`tile[key]`, where some slice of the key has a step."""
    keys = key if isinstance(key, tuple) else (key,)
    rest: list[object] = []
    axis = 0
    for item in expand_key(keys, tile.ndim):
        if isinstance(item, slice) and has_step(item):
            tile, item = _slice_axis(tile, axis, item), slice(None)
        rest.append(item)
        axis += item is not None
    return tile[tuple(rest)]


def _slice_axis(tile: Tile, axis: int, item: slice) -> Tile:
    """Every step-th entry of one axis."""
    if isinstance(item.step, bool) or not isinstance(item.step, int) or item.step == 0:
        raise BadShape(f"a slice of a tile has the step {item.step!r}",
                       hint="a step is a Python integer other than 0")
    size = tile.shape[axis]
    for given in (size, item.start, item.stop):
        if not isinstance(given, int | None):
            raise BadShape(
                f"a slice with a step of an axis of extent {size}, from {item.start} to"
                f" {item.stop}: all of them must be constants",
                hint="et.gather(x, start + step * et.iota(count), axis), with a constant count",
            )
    assert isinstance(size, int)
    taken = range(*item.indices(size))
    if not taken:
        raise BadShape(f"the slice {item.start}:{item.stop}:{item.step} of a tile is empty")
    if item.step > 0 and size % item.step == 0 and len(taken) == size // item.step:
        before, after = tile.shape[:axis], tile.shape[axis + 1 :]
        groups = tile.reshape(*before, len(taken), item.step, *after)
        return groups[(slice(None),) * (axis + 1) + (taken.start,)]
    tr = current()
    index = type(tile)(tr, values.iota(tr, Const(len(taken)), DType.i32))
    picked = index * item.step + taken.start
    return type(tile)(tr, values.gather(tr, tile.read(), picked.read(), axis))
