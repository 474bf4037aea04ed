"""What the C++ back end writes for each op: views and lazy values, or calls of the body writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...ir import tile as t
from ...ir.handler_table import HandlerTable
from ...ir.ops import OP_SPECS
from . import value as cv
from .value import Value, ctype, scalar

if TYPE_CHECKING:
    from .body import BodyWriter

Lowering = Callable[["BodyWriter", int, Any, t.TileType], Value]
CPP: HandlerTable[type[Any], Lowering] = HandlerTable(
    "the C++ back end (codegen/cpp/lowering.py)", OP_SPECS
)


@CPP.register(t.Arg)
def _arg(w: BodyWriter, id: int, op: t.Arg, type: t.TileType) -> Value:
    return replace(w.reads[op.arg], type=type)


@CPP.register(t.Literal)
def _literal(w: BodyWriter, id: int, op: t.Literal, type: t.TileType) -> Value:
    return scalar(cv.literal(op.value, type.dtype), type)


@CPP.register(t.Index)
def _index(w: BodyWriter, id: int, op: t.Index, type: t.TileType) -> Value:
    return scalar(f"{ctype(type.dtype)}({w.expr(op.expr)})", type)


@CPP.register(t.Iota)
def _iota(w: BodyWriter, id: int, op: t.Iota, type: t.TileType) -> Value:
    return Value(type, lambda i: f"{ctype(type.dtype)}({i[0]})")


@CPP.register(t.Unary, t.Binary, t.Where, t.Cast)
def _elementwise(
    w: BodyWriter, id: int, op: t.Unary | t.Binary | t.Where | t.Cast, type: t.TileType
) -> Value:
    return w.elementwise(op, type)


@CPP.register(t.Broadcast)
def _broadcast(w: BodyWriter, id: int, op: t.Broadcast, type: t.TileType) -> Value:
    return cv.broadcast(w.values[op.x], type)


@CPP.register(t.Transpose)
def _transpose(w: BodyWriter, id: int, op: t.Transpose, type: t.TileType) -> Value:
    return cv.transpose(w.values[op.x], op.perm, type)


@CPP.register(t.Reshape)
def _reshape(w: BodyWriter, id: int, op: t.Reshape, type: t.TileType) -> Value:
    return w.reshape(id, w.values[op.x], type)


@CPP.register(t.SliceOf)
def _slice(w: BodyWriter, id: int, op: t.SliceOf, type: t.TileType) -> Value:
    return w.slice(id, w.values[op.x], op.axes, type)


@CPP.register(t.Reduce)
def _reduce(w: BodyWriter, id: int, op: t.Reduce, type: t.TileType) -> Value:
    return w.fold(id, op.op, w.values[op.x], op.axis, type)


@CPP.register(t.ArgMax)
def _argmax(w: BodyWriter, id: int, op: t.ArgMax, type: t.TileType) -> Value:
    return w.fold(id, "argmax", w.values[op.x], len(type.shape), type)


@CPP.register(t.MatMul)
def _matmul(w: BodyWriter, id: int, op: t.MatMul, type: t.TileType) -> Value:
    return w.matmul(id, op.a, op.b, type)


@CPP.register(t.Gather)
def _gather(w: BodyWriter, id: int, op: t.Gather, type: t.TileType) -> Value:
    return w.gather(w.values[op.x], w.values[op.index], op.axis, type)


@CPP.register(t.TopK)
def _topk(w: BodyWriter, id: int, op: t.TopK, type: t.TileType) -> Value:
    return w.topk(id, w.values[op.x], op.k, op.indices, type)


@CPP.register(t.Histogram)
def _histogram(w: BodyWriter, id: int, op: t.Histogram, type: t.TileType) -> Value:
    return w.histogram(id, w.values[op.index], [w.values[x] for x in op.weights], type)


@CPP.register(t.Scan)
def _scan(w: BodyWriter, id: int, op: t.Scan, type: t.TileType) -> Value:
    return w.scan(id, op.op, w.values[op.x], op.axis, type)


@CPP.register(t.Sort)
def _sort(w: BodyWriter, id: int, op: t.Sort, type: t.TileType) -> Value:
    return w.sort(id, w.values[op.x], op.axis, op.indices, type)


@CPP.register(t.Concat)
def _concat(w: BodyWriter, id: int, op: t.Concat, type: t.TileType) -> Value:
    return w.concat(id, [w.values[x] for x in op.xs], op.axis, type)


@CPP.register(t.Update)
def _update(w: BodyWriter, id: int, op: t.Update, type: t.TileType) -> Value:
    return w.update(id, op.x, op.axes, w.values[op.value], type)


CPP.require_all()
