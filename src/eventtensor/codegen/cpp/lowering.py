"""What the C++ back end writes for each op: views and lazy values, or calls of the body writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...ir import tile as t
from ...ir.handler_table import Layer
from ...ir.ops import ROWS
from . import value as cv
from .value import Value, ctype, scalar

if TYPE_CHECKING:
    from .body import BodyWriter

Lowering = Callable[["BodyWriter", int, Any, t.TileType], Value]
CPP: Layer[type[Any], Lowering] = Layer("the C++ back end (codegen/cpp/lowering.py)", ROWS)


@CPP.on(t.Arg)
def _arg(w: BodyWriter, id: int, op: t.Arg, type: t.TileType) -> Value:
    return replace(w.reads[op.arg], type=type)


@CPP.on(t.Literal)
def _literal(w: BodyWriter, id: int, op: t.Literal, type: t.TileType) -> Value:
    return scalar(cv.literal(op.value, type.dtype), type)


@CPP.on(t.Index)
def _index(w: BodyWriter, id: int, op: t.Index, type: t.TileType) -> Value:
    return scalar(f"{ctype(type.dtype)}({w.expr(op.expr)})", type)


@CPP.on(t.Iota)
def _iota(w: BodyWriter, id: int, op: t.Iota, type: t.TileType) -> Value:
    return Value(type, lambda i: f"{ctype(type.dtype)}({i[0]})")


@CPP.on(t.Unary, t.Binary, t.Where, t.Cast)
def _elementwise(
    w: BodyWriter, id: int, op: t.Unary | t.Binary | t.Where | t.Cast, type: t.TileType
) -> Value:
    return w.elementwise(op, type)


@CPP.on(t.Broadcast)
def _broadcast(w: BodyWriter, id: int, op: t.Broadcast, type: t.TileType) -> Value:
    return cv.broadcast(w.values[op.x], type)


@CPP.on(t.Transpose)
def _transpose(w: BodyWriter, id: int, op: t.Transpose, type: t.TileType) -> Value:
    return cv.transpose(w.values[op.x], op.perm, type)


@CPP.on(t.Reshape)
def _reshape(w: BodyWriter, id: int, op: t.Reshape, type: t.TileType) -> Value:
    return w.reshape(id, w.values[op.x], type)


@CPP.on(t.SliceOf)
def _slice(w: BodyWriter, id: int, op: t.SliceOf, type: t.TileType) -> Value:
    return w.slice(id, w.values[op.x], op.axes, type)


@CPP.on(t.Reduce)
def _reduce(w: BodyWriter, id: int, op: t.Reduce, type: t.TileType) -> Value:
    return w.fold(id, op.op, w.values[op.x], op.axis, type)


@CPP.on(t.ArgMax)
def _argmax(w: BodyWriter, id: int, op: t.ArgMax, type: t.TileType) -> Value:
    return w.fold(id, "argmax", w.values[op.x], len(type.shape), type)


@CPP.on(t.MatMul)
def _matmul(w: BodyWriter, id: int, op: t.MatMul, type: t.TileType) -> Value:
    return w.matmul(id, op.a, op.b, type)


@CPP.on(t.Gather)
def _gather(w: BodyWriter, id: int, op: t.Gather, type: t.TileType) -> Value:
    return w.gather(w.values[op.x], w.values[op.index], op.axis, type)


@CPP.on(t.TopK)
def _topk(w: BodyWriter, id: int, op: t.TopK, type: t.TileType) -> Value:
    return w.topk(id, w.values[op.x], op.k, op.indices, type)


@CPP.on(t.Histogram)
def _histogram(w: BodyWriter, id: int, op: t.Histogram, type: t.TileType) -> Value:
    return w.histogram(id, w.values[op.index], [w.values[x] for x in op.weights], type)


@CPP.on(t.Scan)
def _scan(w: BodyWriter, id: int, op: t.Scan, type: t.TileType) -> Value:
    return w.scan(id, op.op, w.values[op.x], op.axis, type)


@CPP.on(t.Sort)
def _sort(w: BodyWriter, id: int, op: t.Sort, type: t.TileType) -> Value:
    return w.sort(id, w.values[op.x], op.axis, op.indices, type)


@CPP.on(t.Concat)
def _concat(w: BodyWriter, id: int, op: t.Concat, type: t.TileType) -> Value:
    return w.concat(id, [w.values[x] for x in op.xs], op.axis, type)


@CPP.on(t.Update)
def _update(w: BodyWriter, id: int, op: t.Update, type: t.TileType) -> Value:
    return w.update(id, op.x, op.axes, w.values[op.value], type)


CPP.require_all()
