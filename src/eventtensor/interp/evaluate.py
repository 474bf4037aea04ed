"""Evaluates a tile body in NumPy.

Stores and accumulations are returned as `Effects`, because a task writes when it ends. Memory is
read through the given tiles and `load` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from ..errors import ExtentMismatch, OutOfRange
from ..ir import tile as t
from ..ir.expr import Node
from ..ir.expr_functions import ExprFunctions
from ..ir.handler_table import HandlerTable
from ..ir.ops import OP_SPECS
from ..ir.tensor import DType, Point, Slice
from ..ir.walk import LoadFn
from . import numbers
from .numbers import Array


@dataclass(frozen=True, slots=True)
class Place:
    """The task that runs, and the line of its call, for messages."""

    label: object
    place: str


@dataclass(slots=True)
class Effects:
    """A tile and its assigned elements for each write argument; accumulated tiles in order."""

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
    functions: ExprFunctions | None = None,
) -> Effects:
    """The effects of a body. `tiles` are the read arguments in tile dtypes, `shapes` the extents of
    the write arguments. `env` binds dims and coordinates. Callers silence NumPy's warnings."""
    kinds = {k: body.args[k].type.dtype.numpy for k in shapes}
    effects = Effects(
        {k: np.zeros(s, kinds[k]) for k, s in shapes.items()},
        {k: np.zeros(s, np.bool_) for k, s in shapes.items()},
    )
    functions = ExprFunctions() if functions is None else functions
    values: dict[int, Array] = {}
    Frame(_Scope(env, values), tiles, load, place, functions, effects, values).block(body.stmts)
    return effects


class _Scope(dict[str, int]):
    """Dims and coordinates, and `%7` for the present value of the 0-d integer 7."""

    def __init__(self, env: Mapping[str, int], values: Mapping[int, Array]) -> None:
        super().__init__(env)
        self._values = values

    def __missing__(self, name: str) -> int:
        return int(self._values[int(name[1:])])


@dataclass(slots=True)
class Frame:
    """The state of one evaluation: arguments, values and effects."""

    env: Mapping[str, int]
    tiles: Mapping[int, Array]
    load: LoadFn
    place: Place
    functions: ExprFunctions
    effects: Effects
    values: dict[int, Array]

    def block(self, stmts: tuple[t.Stmt, ...]) -> None:
        for s in stmts:
            if isinstance(s, t.Let):  # the common case, faster than a match
                self.bind(s.id, MEANING[s.op.__class__](self, s.op, s.type), s.type.dtype)
                continue
            match s:
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
        if value.dtype is not dtype.numpy:
            value = np.asarray(value, dtype.numpy)
        self.values[id] = value

    def loop(self, s: t.For) -> None:
        """Carried tiles are replaced together, so one may be the next value of another."""
        for c in s.carries:
            self.bind(c.phi, self.values[c.init], c.type.dtype)
        for k in range(self.size(s.extent)):
            self.bind(s.var, np.asarray(k, np.int64), DType.i64)
            self.block(s.body)
            for c, value in [(c, self.values[c.next]) for c in s.carries]:
                self.bind(c.phi, value, c.type.dtype)
        for c in s.carries:
            self.bind(c.out, self.values[c.phi], c.type.dtype)

    def size(self, e: Node) -> int:
        return self.functions.value(e, self.env, self.load)

    def shape(self, type: t.TileType) -> tuple[int, ...]:
        return tuple(max(0, self.size(e)) for e in type.shape)

    def largest(self, x: Array, k: int, what: str) -> Array:
        rows = x.shape[:-1]
        if 0 in rows:
            return np.zeros((*rows, k), np.int32)
        if x.shape[-1] < k:
            self.outside(what, k - 1, x.ndim - 1, x.shape[-1])
        return numbers.descending(x)[..., :k].astype(np.int32)

    def key(
        self, axes: tuple[t.SubAxis, ...], shape: tuple[int, ...], what: str
    ) -> tuple[int | slice, ...]:
        """NumPy's key of a sub-tile. Slices are clipped at the upper end."""
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
                    if not 0 <= lo <= size:
                        self.outside(what, lo, k, size)
                    key.append(slice(lo, max(lo, min(hi, size))))
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


# ---- ops -----------------------------------------------------------------------------------

MEANING: HandlerTable[type[Any], Callable[[Frame, Any, t.TileType], Array]] = HandlerTable(
    "the interpreter (interp/evaluate.py)", OP_SPECS
)


@MEANING.register(t.Arg)
def _arg(f: Frame, op: t.Arg, type: t.TileType) -> Array:
    return f.tiles[op.arg]


@MEANING.register(t.Literal)
def _literal(f: Frame, op: t.Literal, type: t.TileType) -> Array:
    return np.asarray(op.value, type.dtype.numpy)


@MEANING.register(t.Index)
def _index(f: Frame, op: t.Index, type: t.TileType) -> Array:
    return np.asarray(f.size(op.expr)).astype(type.dtype.numpy)


@MEANING.register(t.Unary)
def _unary(f: Frame, op: t.Unary, type: t.TileType) -> Array:
    return numbers.elementwise(op.op, f.values[op.x])


@MEANING.register(t.Binary)
def _binary(f: Frame, op: t.Binary, type: t.TileType) -> Array:
    a, b = f.values[op.a], f.values[op.b]
    f.same(op.op, a.shape, b.shape)
    return numbers.elementwise(op.op, a, b)


@MEANING.register(t.Where)
def _where(f: Frame, op: t.Where, type: t.TileType) -> Array:
    cond, a, b = f.values[op.cond], f.values[op.a], f.values[op.b]
    f.same("where", cond.shape, a.shape)
    f.same("where", a.shape, b.shape)
    return np.where(cond, a, b)


@MEANING.register(t.Cast)
def _cast(f: Frame, op: t.Cast, type: t.TileType) -> Array:
    return numbers.cast(f.values[op.x], op.dtype)


@MEANING.register(t.Reduce)
def _reduce(f: Frame, op: t.Reduce, type: t.TileType) -> Array:
    x = f.values[op.x]
    if op.op == "sum":
        return numbers.lane_sum(x.astype(type.dtype.numpy, copy=False), op.axis)
    return numbers.extreme(op.op, x, op.axis)


@MEANING.register(t.MatMul)
def _matmul(f: Frame, op: t.MatMul, type: t.TileType) -> Array:
    a, b = f.values[op.a], f.values[op.b]
    f.same("matmul", a.shape[1:], b.shape[:1])
    return numbers.matmul(a, b)


@MEANING.register(t.Scan)
def _scan(f: Frame, op: t.Scan, type: t.TileType) -> Array:
    return numbers.scan(op.op, f.values[op.x], op.axis)


@MEANING.register(t.Sort)
def _sort(f: Frame, op: t.Sort, type: t.TileType) -> Array:
    x = f.values[op.x]
    order = np.argsort(x, axis=op.axis, kind="stable")
    return order.astype(np.int32) if op.indices else np.take_along_axis(x, order, axis=op.axis)


@MEANING.register(t.Gather)
def _gather(f: Frame, op: t.Gather, type: t.TileType) -> Array:
    x, index = f.values[op.x], f.values[op.index]
    bad = (index < 0) | (index >= x.shape[op.axis])
    if bad.any():
        f.outside("a gather", int(index[bad].flat[0]), op.axis, x.shape[op.axis])
    return np.take(x, index, axis=op.axis)


@MEANING.register(t.ArgMax)
def _argmax(f: Frame, op: t.ArgMax, type: t.TileType) -> Array:
    return f.largest(f.values[op.x], 1, "argmax")[..., 0]


@MEANING.register(t.TopK)
def _topk(f: Frame, op: t.TopK, type: t.TileType) -> Array:
    x = f.values[op.x]
    order = f.largest(x, op.k, "topk")
    return order if op.indices else np.take_along_axis(x, order, axis=-1)


@MEANING.register(t.Histogram)
def _histogram(f: Frame, op: t.Histogram, type: t.TileType) -> Array:
    index, weights = f.values[op.index], [f.values[w] for w in op.weights]
    for w in weights:
        f.same("histogram", index.shape, w.shape)
    return numbers.histogram(index, weights, f.shape(type)[1])


@MEANING.register(t.Broadcast)
def _broadcast(f: Frame, op: t.Broadcast, type: t.TileType) -> Array:
    x, shape = f.values[op.x], f.shape(type)
    tail = shape[len(shape) - x.ndim :]
    if any(have not in (1, want) for have, want in zip(x.shape, tail, strict=True)):
        f.same("broadcast", x.shape, shape)
    return np.broadcast_to(x, shape)


@MEANING.register(t.Transpose)
def _transpose(f: Frame, op: t.Transpose, type: t.TileType) -> Array:
    return np.transpose(f.values[op.x], op.perm)


@MEANING.register(t.Reshape)
def _reshape(f: Frame, op: t.Reshape, type: t.TileType) -> Array:
    x, shape = f.values[op.x], f.shape(type)
    if x.size != np.prod(shape, dtype=np.int64):
        f.same("reshape", x.shape, shape)
    return x.reshape(shape)


@MEANING.register(t.Concat)
def _concat(f: Frame, op: t.Concat, type: t.TileType) -> Array:
    xs = [f.values[x] for x in op.xs]
    rest = [tuple(np.delete(x.shape, op.axis)) for x in xs]
    for other in rest[1:]:
        f.same("concat", rest[0], other)
    return np.concatenate(xs, axis=op.axis)


@MEANING.register(t.Iota)
def _iota(f: Frame, op: t.Iota, type: t.TileType) -> Array:
    return np.arange(f.shape(type)[0], dtype=type.dtype.numpy)


@MEANING.register(t.SliceOf)
def _slice(f: Frame, op: t.SliceOf, type: t.TileType) -> Array:
    x = f.values[op.x]
    return x[f.key(op.axes, x.shape, "a slice")]


@MEANING.register(t.Update)
def _update(f: Frame, op: t.Update, type: t.TileType) -> Array:
    out, value = f.values[op.x].copy(), f.values[op.value]
    key = f.key(op.axes, out.shape, "an assigned slice")
    f.same("an assigned slice", out[key].shape, value.shape)
    out[key] = value
    return out


MEANING.require_all()
