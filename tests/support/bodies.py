"""Task kinds whose results are exact on every back end: integers below 97 held in floats.

Every body mixes all it reads into all it writes, so that a stale or early read shows in the result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import eventtensor as et

MODULUS = 97


def _fold(x: Any) -> Any:
    """All elements of a tile as one integer below MODULUS; their places matter."""
    v = x if x.dtype is et.i32 else x.cast(et.i32)
    v = v % MODULUS
    while v.ndim:
        v = (v * (et.iota(v.shape[-1]) % 5 + 1)).sum(axis=-1)
    return v % MODULUS


def _mixed(*tiles: Any) -> Any:
    total = _fold(tiles[0])
    for k, t in enumerate(tiles[1:]):
        total = total * (k + 3) + _fold(t)
    return ((total * 7 + 5) % MODULUS).cast(et.f32)


@et.task
def fill(out: Any) -> None:
    out[:] = 11.0


@et.task
def mix1(a: Any, out: Any) -> None:
    out[:] = _mixed(a)


@et.task
def mix2(a: Any, b: Any, out: Any) -> None:
    out[:] = _mixed(a, b)


@et.task
def mix3(a: Any, b: Any, c: Any, out: Any) -> None:
    out[:] = _mixed(a, b, c)


@et.task
def mix1_to2(a: Any, out: Any, also: Any) -> None:
    out[:] = _mixed(a)
    also[:] = _mixed(a) + 1.0


@et.task
def add1(a: Any, acc: Any) -> None:
    acc[:] += _mixed(a)


@et.task
def add2(a: Any, b: Any, acc: Any) -> None:
    acc[:] += _mixed(a, b)


@et.task
def same(a: Any, out: Any) -> None:
    """Element by element; read and write regions have one shape."""
    out[:] = ((a.cast(et.i32) * 3 + 1) % MODULUS).cast(et.f32)


@et.task
def same2(a: Any, b: Any, out: Any) -> None:
    out[:] = ((a.cast(et.i32) * 3 + b.cast(et.i32) * 5 + 1) % MODULUS).cast(et.f32)


@cache
def walk(step: int) -> Any:
    """Walks over its first operand in chunks of rows, the last one perhaps shorter."""

    @et.task
    def walk(a: Any, b: Any, out: Any) -> None:
        total = et.full((1,), 0, et.i32)
        rest = (slice(None),) * (a.ndim - 1)
        for v in et.range((a.shape[0] + step - 1) // step):
            chunk = a[(slice(v * step, v * step + step), *rest)]
            total[:] = (total * 3 + _fold(chunk)) % MODULUS
        out[:] = ((total + _fold(b)) % MODULUS).cast(et.f32)[0]

    return walk


@et.task
def copy_index(a: Any, out: Any) -> None:
    out[:] = a


MIX = {1: mix1, 2: mix2, 3: mix3}
ADD = {1: add1, 2: add2}
