"""Evaluates a tile body in NumPy. What it stores and accumulates comes back as `Effects`; memory is
only read, through the given tiles and `load`, so a task writes when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from ..errors import ExtentMismatch, OutOfRange
from ..ir import tile as t
from ..ir.expr import Node
from ..ir.tensor import DType, Point, Slice
from ..ir.walk import LoadFn
from ..ir.walk import evaluate as value_of
from . import numbers
from .numbers import Array


@dataclass(frozen=True, slots=True)
class Place:
    """Who is running and where it was written, for messages."""

    label: str
    place: str


@dataclass(slots=True)
class Effects:
    """Per write argument a tile and the elements assigned so far; accumulated tiles in order."""

    tiles: dict[int, Array]
    assigned: dict[int, Array]
    added: list[tuple[int, Array]] = field(default_factory=list)


def evaluate(
    body: t.Body,
    env: Mapping[str, int],
    tiles: Mapping[int, Array],
    shapes: Mapping[int, tuple[int, ...]],
    load: LoadFn,
    place: Place,
) -> Effects:
    """`tiles` are the read arguments in tile dtypes, `shapes` the extents of the write arguments;
    `env` binds dims and coordinates."""
    kinds = {k: body.args[k].type.dtype.numpy for k in shapes}
    effects = Effects(
        {k: np.zeros(s, kinds[k]) for k, s in shapes.items()},
        {k: np.zeros(s, np.bool_) for k, s in shapes.items()},
    )
    with np.errstate(all="ignore"):
        _Frame(dict(env), tiles, load, place, effects).block(body.stmts)
    return effects


@dataclass(slots=True)
class _Frame:
    env: dict[str, int]
    tiles: Mapping[int, Array]
    load: LoadFn
    place: Place
    effects: Effects
    values: dict[int, Array] = field(default_factory=dict)

    def block(self, stmts: tuple[t.Stmt, ...]) -> None:
        for s in stmts:
            match s:
                case t.Let(id, op, type):
                    self.bind(id, self.op(op, type), type.dtype)
                case t.For():
                    self.loop(s)
                case t.Store(arg, axes, value):
                    key = self.key(axes, self.effects.tiles[arg].shape, "a store")
                    target = self.effects.tiles[arg]
                    self.same("a store", target[key].shape, self.values[value].shape)
                    target[key] = self.values[value]
                    self.effects.assigned[arg][key] = True
                case t.Accumulate(arg, value):
                    self.effects.added.append((arg, self.values[value]))
                case _:
                    assert_never(s)

    def bind(self, id: int, value: Array, dtype: DType) -> None:
        value = np.asarray(value, dtype.numpy)
        self.values[id] = value
        if value.ndim == 0 and dtype is not DType.f32:
            self.env[f"%{id}"] = int(value)

    def loop(self, s: t.For) -> None:
        """Carried tiles are handed on together, so one may be the next of another."""
        for c in s.carries:
            self.bind(c.phi, self.values[c.init], c.type.dtype)
        for k in range(self.size(s.extent)):
            self.bind(s.var, np.asarray(k, np.int64), DType.i64)
            self.block(s.body)
            for c, value in [(c, self.values[c.next]) for c in s.carries]:
                self.bind(c.phi, value, c.type.dtype)
        for c in s.carries:
            self.bind(c.out, self.values[c.phi], c.type.dtype)

    def op(self, op: t.Op, type: t.TileType) -> Array:
        v = self.values
        match op:
            case t.Arg(arg):
                return self.tiles[arg]
            case t.Literal(value):
                return np.asarray(value, type.dtype.numpy)
            case t.Index(expr):
                return np.asarray(self.size(expr)).astype(type.dtype.numpy)
            case t.Unary(name, x):
                return numbers.unary(name, v[x])
            case t.Binary(name, a, b):
                self.same(name, v[a].shape, v[b].shape)
                return numbers.binary(name, v[a], v[b])
            case t.Where(c, a, b):
                self.same("where", v[c].shape, v[a].shape)
                self.same("where", v[a].shape, v[b].shape)
                return np.where(v[c], v[a], v[b])
            case t.Cast(x, dtype):
                return numbers.cast(v[x], dtype)
            case t.Reduce("sum", x, axis):
                return numbers.lane_sum(v[x].astype(type.dtype.numpy, copy=False), axis)
            case t.Reduce(name, x, axis):
                return numbers.extreme(name, v[x], axis)
            case t.MatMul(a, b):
                self.same("matmul", v[a].shape[1:], v[b].shape[:1])
                return numbers.matmul(v[a], v[b])
            case t.Cumsum(x, axis):
                return numbers.cumsum(v[x].astype(type.dtype.numpy, copy=False), axis)
            case t.Gather(x, index, axis):
                return self.gather(v[x], v[index], axis)
            case t.ArgMax(x):
                return self.largest(v[x], 1, "argmax")[..., 0]
            case t.TopK(x, k, indices):
                order = self.largest(v[x], k, "topk")
                return order if indices else np.take_along_axis(v[x], order, axis=-1)
            case t.Histogram(index, weights):
                for w in weights:
                    self.same("histogram", v[index].shape, v[w].shape)
                return numbers.histogram(v[index], [v[w] for w in weights], self.shape(type)[1])
            case _:
                return self.layout(op, type)

    def layout(
        self,
        op: t.Broadcast | t.Transpose | t.Reshape | t.Concat | t.Iota | t.SliceOf | t.Update,
        type: t.TileType,
    ) -> Array:
        """Ops that only move elements."""
        v = self.values
        match op:
            case t.Broadcast(x):
                return self.broadcast(v[x], self.shape(type))
            case t.Transpose(x, perm):
                return np.transpose(v[x], perm)
            case t.Reshape(x):
                shape = self.shape(type)
                if v[x].size != np.prod(shape, dtype=np.int64):
                    self.same("reshape", v[x].shape, shape)
                return v[x].reshape(shape)
            case t.Concat(xs, axis):
                rest = [tuple(np.delete(v[x].shape, axis)) for x in xs]
                for other in rest[1:]:
                    self.same("concat", rest[0], other)
                return np.concatenate([v[x] for x in xs], axis=axis)
            case t.Iota():
                return np.arange(self.shape(type)[0], dtype=type.dtype.numpy)
            case t.SliceOf(x, axes):
                return v[x][self.key(axes, v[x].shape, "a slice")]
            case t.Update(x, axes, value):
                out = v[x].copy()
                key = self.key(axes, out.shape, "an assigned slice")
                self.same("an assigned slice", out[key].shape, v[value].shape)
                out[key] = v[value]
                return out
            case _:
                assert_never(op)

    def size(self, e: Node) -> int:
        return value_of(e, self.env, self.load)

    def shape(self, type: t.TileType) -> tuple[int, ...]:
        return tuple(max(0, self.size(e)) for e in type.shape)

    def broadcast(self, x: Array, shape: tuple[int, ...]) -> Array:
        tail = shape[len(shape) - x.ndim :]
        if any(have not in (1, want) for have, want in zip(x.shape, tail, strict=True)):
            self.same("broadcast", x.shape, shape)
        return np.broadcast_to(x, shape)

    def gather(self, x: Array, index: Array, axis: int) -> Array:
        bad = (index < 0) | (index >= x.shape[axis])
        if bad.any():
            self.outside("a gather", int(index[bad].flat[0]), axis, x.shape[axis])
        return np.take(x, index, axis=axis)

    def largest(self, x: Array, k: int, what: str) -> Array:
        if x.shape[-1] < k:
            self.outside(what, k - 1, x.ndim - 1, x.shape[-1])
        return numbers.descending(x)[..., :k].astype(np.int32)

    def key(
        self, axes: tuple[t.SubAxis, ...], shape: tuple[int, ...], what: str
    ) -> tuple[int | slice, ...]:
        """NumPy's key of a sub-tile; slices are clipped at the upper end."""
        key: list[int | slice] = []
        for k, (axis, size) in enumerate(zip(axes, shape, strict=True)):
            match axis:
                case Point(index):
                    at = self.size(index)
                    if not 0 <= at < size:
                        self.outside(what, at, k, size)
                    key.append(at)
                case Slice(start, stop):
                    lo, hi = self.size(start), self.size(stop)
                    if lo < 0:
                        self.outside(what, lo, k, size)
                    key.append(slice(min(lo, size), max(lo, min(hi, size))))
                case _:
                    assert_never(axis)
        return tuple(key)

    def outside(self, what: str, index: int, axis: int, size: int) -> None:
        raise OutOfRange(
            f"{what} in {self.place.label} uses index {index} on axis {axis} of extent {size}",
            place=self.place.place,
        )

    def same(self, what: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
        if a != b:
            raise ExtentMismatch(
                f"{what} in {self.place.label} meets tiles of extents {_text(a)} and {_text(b)}",
                place=self.place.place,
            )


def _text(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(str(int(s)) for s in shape) + ")"
