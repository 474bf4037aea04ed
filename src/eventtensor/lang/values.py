"""Tile operations on immutable values, one IR op each.

They check dtypes, broadcast explicitly and emit through the tracer. Python operators and functions
are in lang/symbolic_tile.py and lang/tile_functions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BadDType, BadShape
from ..ir.elementwise import FUNCTIONS, NUMERIC
from ..ir.expr import Const, Node, maximum, minimum
from ..ir.handler_table import HandlerTable
from ..ir.ops import OP_SPECS, result_type
from ..ir.tensor import DType
from ..ir.tile import (
    Arg,
    ArgMax,
    Binary,
    Broadcast,
    Cast,
    Concat,
    Gather,
    Histogram,
    Index,
    Iota,
    Literal,
    MatMul,
    Op,
    Reduce,
    Reshape,
    Scan,
    SliceOf,
    Sort,
    SubAxis,
    TileType,
    TopK,
    Transpose,
    Unary,
    Update,
    Where,
)
from .index_ops import INDEX_OPS
from .shapes import Shape, common_shape, fit_into, is_whole, require_equal, shape_text, sub_shape
from .tracer import Tracer, Value

INTS = (DType.i32, DType.i64)
DIVIDE = "x.cast(et.f32) / y.cast(et.f32) gives fractions, x // y whole numbers"
# Functions that index expressions have too.
INDEX_FORMS = ("add", "sub", "mul", "floordiv", "mod", "min", "max")


def _emit(
    tr: Tracer, op: Op, *operands: Value, shape: Shape | None = None, index: Node | None = None
) -> Value:
    """A value whose type follows from its operands. `shape` is another form of its extents."""
    type_ = result_type(op, [x.type for x in operands])
    return tr.emit(op, type_ if shape is None else TileType(type_.dtype, shape), index)


def literal(tr: Tracer, value: float, dtype: DType) -> Value:
    exact: float = bool(value) if dtype is DType.bool_ else value
    if dtype in INTS:
        exact = int(value)
        if not -(2 ** (8 * dtype.size - 1)) <= exact < 2 ** (8 * dtype.size - 1):
            raise BadDType(f"{value} does not fit {dtype}")
    elif dtype is DType.f32:
        exact = float(value)
    index = Const(int(exact)) if dtype in INTS else None
    return tr.emit(Literal(exact), TileType(dtype, ()), index)


def index_value(tr: Tracer, e: Node, dtype: DType) -> Value:
    """An index expression as a 0-d tile: i64, then cast."""
    value = tr.emit(Index(tr.check_expr(e)), TileType(DType.i64, ()), e)
    if dtype is DType.bool_:
        return compare_zero(tr, value)
    return cast(tr, value, dtype)


def compare_zero(tr: Tracer, value: Value) -> Value:
    return binary(tr, "ne", value, literal(tr, 0, value.dtype))


def cast(tr: Tracer, x: Value, dtype: DType) -> Value:
    if x.dtype is dtype:
        return x
    index = x.index if dtype in INTS else None
    return _emit(tr, Cast(x.id, dtype), x, index=index)


def broadcast(tr: Tracer, x: Value, shape: Shape) -> Value:
    """To `shape`, whose axes are those of x, or ones of x repeated."""
    same = len(x.shape) == len(shape) and all(
        a == b or a != Const(1) for a, b in zip(x.shape, shape, strict=True)
    )
    return x if same else tr.emit(Broadcast(x.id), TileType(x.dtype, shape))


def fit_to_type(tr: Tracer, x: Value, type_: TileType, what: str) -> Value:
    """x, broadcast to `type_`, to which it is assigned."""
    if x.dtype is not type_.dtype:
        raise BadDType(
            f"{what} is {type_.dtype} and is assigned {x.dtype}", hint=_convert_hint(type_.dtype)
        )
    fit_into(tr, x.shape, type_.shape)
    return broadcast(tr, x, type_.shape)


def unary(tr: Tracer, op: str, x: Value) -> Value:
    if x.dtype not in FUNCTIONS[op].takes:
        raise BadDType(f"{op} of a {x.dtype} tile", hint=_cast_hint(op))
    index = INDEX_OPS["mul"](Const(-1), x.index) if op == "neg" and x.index is not None else None
    return _emit(tr, Unary(op, x.id), x, index=index)


def _convert_hint(dtype: DType) -> str:
    return f"there is no implicit mixing: use x.cast(et.{dtype.name})"


def _wider_hint(a: Value, b: Value) -> str:
    """The hint to cast to the type that loses least."""
    order = (DType.bool_, DType.i32, DType.i64, DType.f32)
    return _convert_hint(max(a.dtype, b.dtype, key=order.index))


def _cast_hint(op: str) -> str:
    takes = FUNCTIONS[op].takes
    first = DType.bool_ if op == "not" else takes[0]
    return f"{op} takes {', '.join(map(str, takes))}: cast it, as in x.cast(et.{first.name})"


def binary(tr: Tracer, op: str, a: Value, b: Value) -> Value:
    if a.dtype is not b.dtype:
        raise BadDType(f"{op} of a {a.dtype} tile and a {b.dtype} tile", hint=_wider_hint(a, b))
    if a.dtype not in FUNCTIONS[op].takes:
        hint = DIVIDE if op == "div" and a.dtype in INTS else _cast_hint(op)
        raise BadDType(f"{op} of {a.dtype} tiles", hint=hint)
    shape = common_shape(tr, a.shape, b.shape)
    x, y = broadcast(tr, a, shape), broadcast(tr, b, shape)
    return _emit(tr, Binary(op, x.id, y.id), x, y, shape=shape, index=_index_of(op, a, b))


def _index_of(op: str, a: Value, b: Value) -> Node | None:
    """The index expression of a 0-d result, so that `x[p*16 : p*16+16]` has extent 16."""
    if a.index is None or b.index is None or op not in INDEX_FORMS:
        return None
    if op in ("floordiv", "mod"):
        positive = isinstance(b.index, Const) and b.index.value > 0
        return INDEX_OPS[op](a.index, b.index) if positive else None
    if op in ("min", "max"):
        return minimum(a.index, b.index) if op == "min" else maximum(a.index, b.index)
    if op == "mul" and not (isinstance(a.index, Const) or isinstance(b.index, Const)):
        return None
    return INDEX_OPS[op](a.index, b.index)


def where(tr: Tracer, cond: Value, a: Value, b: Value) -> Value:
    if cond.dtype is not DType.bool_:
        raise BadDType(f"the condition of where is {cond.dtype}", hint="compare, as in x > 0")
    if a.dtype is not b.dtype:
        raise BadDType(f"where chooses between {a.dtype} and {b.dtype}", hint=_wider_hint(a, b))
    shape = common_shape(tr, common_shape(tr, cond.shape, a.shape), b.shape)
    c, x, y = (broadcast(tr, v, shape) for v in (cond, a, b))
    return _emit(tr, Where(c.id, x.id, y.id), c, x, y, shape=shape)


def reduce(tr: Tracer, op: str, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    if x.dtype is DType.bool_:
        return _reduce_truth(tr, op, x, axes, keepdims)
    if x.dtype not in NUMERIC:
        raise BadDType(f"{op} over a {x.dtype} tile")
    with_ones = tuple(Const(1) if k in axes else s for k, s in enumerate(x.shape))
    out = x
    for axis in sorted(axes, reverse=True):
        out = _emit(tr, Reduce(op, out.id, axis), out)
    return reshape(tr, out, with_ones) if keepdims and axes else out


def _reduce_truth(
    tr: Tracer, op: str, x: Value, axes: tuple[int, ...], keepdims: bool
) -> Value:
    """The sum of bools is a count; their minimum and maximum are bools."""
    found = reduce(tr, op, cast(tr, x, DType.i32), axes, keepdims)
    return found if op == "sum" else binary(tr, "gt", found, literal(tr, 0, DType.i32))


def matmul(tr: Tracer, a: Value, b: Value) -> Value:
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise BadShape(f"@ of shapes {shape_text(a.shape)} and {shape_text(b.shape)}",
                       hint="both sides need two axes; use x[:, None] or x[None, :]")
    if a.dtype is not DType.f32 or b.dtype is not DType.f32:
        raise BadDType(f"@ of {a.dtype} and {b.dtype}", hint="@ multiplies f32: x.cast(et.f32)")
    require_equal(tr, a.shape[1], b.shape[0],
                  f"@ of shapes {shape_text(a.shape)} and {shape_text(b.shape)}: its inner axes")
    return _emit(tr, MatMul(a.id, b.id), a, b)


def transpose(tr: Tracer, x: Value, perm: tuple[int, ...]) -> Value:
    if sorted(perm) != list(range(len(x.shape))):
        raise BadShape(f"transpose of {len(x.shape)} axes by {perm}")
    if perm == tuple(range(len(perm))):
        return x
    return _emit(tr, Transpose(x.id, perm), x)


def reshape(tr: Tracer, x: Value, shape: Shape) -> Value:
    if shape == x.shape:
        return x
    return tr.emit(Reshape(x.id), TileType(x.dtype, shape), x.index if not shape else None)


def concat(tr: Tracer, xs: list[Value], axis: int) -> Value:
    first = xs[0]
    for x in xs:
        if x.dtype is not first.dtype:
            raise BadDType(f"concat of {first.dtype} and {x.dtype}")
        what = f"concat of {shape_text(first.shape)} and {shape_text(x.shape)}: other axes"
        if len(x.shape) != len(first.shape):
            raise BadShape(f"{what} differ in number")
        for k, (s, t) in enumerate(zip(first.shape, x.shape, strict=True)):
            if k != axis:
                require_equal(tr, s, t, what)
    return _emit(tr, Concat(tuple(x.id for x in xs), axis), *xs)


def iota(tr: Tracer, n: Node, dtype: DType) -> Value:
    if dtype not in INTS:
        raise BadDType(f"iota of {dtype}", hint="iota is i32 or i64; cast it for others")
    return tr.emit(Iota(), TileType(dtype, (tr.check_expr(n),)))


def slice_of(tr: Tracer, x: Value, axes: tuple[SubAxis, ...]) -> Value:
    if is_whole(axes, x.shape):
        return x
    return tr.emit(SliceOf(x.id, axes), TileType(x.dtype, sub_shape(axes, x.shape)))


def update(tr: Tracer, x: Value, axes: tuple[SubAxis, ...], value: Value) -> Value:
    type_ = TileType(x.dtype, sub_shape(axes, x.shape))
    new = fit_to_type(tr, value, type_, "the tile")
    if is_whole(axes, x.shape):
        return new if new.shape == x.shape else Value(new.id, x.type, new.index)
    return _emit(tr, Update(x.id, axes, new.id), x, new)


def scan(tr: Tracer, op: str, x: Value, axis: int) -> Value:
    if x.dtype is DType.bool_:
        x = cast(tr, x, DType.i32)
    if x.dtype not in NUMERIC:
        raise BadDType(f"cum{op} over a {x.dtype} tile")
    return _emit(tr, Scan(op, x.id, axis), x)


def sort(tr: Tracer, x: Value, axis: int, indices: bool) -> Value:
    if x.dtype not in NUMERIC:
        raise BadDType(f"sort of a {x.dtype} tile", hint="sort numbers: x.cast(et.i32)")
    return _emit(tr, Sort(x.id, axis, indices), x)


def gather(tr: Tracer, x: Value, index: Value, axis: int) -> Value:
    if index.dtype not in INTS:
        raise BadDType(f"gather by a {index.dtype} tile", hint="the index is an i32 or i64 tile")
    return _emit(tr, Gather(x.id, index.id, axis), x, index)


def argmax(tr: Tracer, x: Value) -> Value:
    if not x.shape or x.dtype not in NUMERIC:
        raise BadShape(f"argmax of {x.type}", hint="argmax is over the last axis of numbers")
    return _emit(tr, ArgMax(x.id), x)


def topk(tr: Tracer, x: Value, k: int) -> tuple[Value, Value]:
    if not x.shape or x.dtype not in NUMERIC:
        raise BadShape(f"topk of {x.type}", hint="topk is over the last axis of numbers")
    last = x.shape[-1]
    if k < 1 or (isinstance(last, Const) and last.value < k):
        raise BadShape(f"topk of {k} from an axis of extent {last}")
    return _emit(tr, TopK(x.id, k, False), x), _emit(tr, TopK(x.id, k, True), x)


def histogram(tr: Tracer, index: Value, weights: list[Value], bins: int) -> Value:
    if index.dtype not in INTS or any(w.dtype is not DType.i32 for w in weights):
        kinds = ", ".join(str(x.dtype) for x in (index, *weights))
        raise BadDType(f"histogram of {kinds}",
                       hint="the index is i32 or i64 and weights are i32: floats have no exact sum")
    shape = index.shape
    for w in weights:
        shape = common_shape(tr, shape, w.shape)
    if len(shape) != 1 or not weights or bins < 1:
        raise BadShape(f"histogram of {index.type} in {bins} bins, with {len(weights)} weights",
                       hint="the index has one axis, and there is a weight and a bin at least")
    at, *rows = (broadcast(tr, x, shape).id for x in (index, *weights))
    type_ = TileType(DType.i32, (Const(len(weights)), Const(bins)))
    return tr.emit(Histogram(at, tuple(rows)), type_)


# The function that emits each op. lang/trace_body.py emits Arg for the arguments of a body.
EMITTERS: HandlerTable[type[Any], Callable[..., Any]] = HandlerTable(
    "the language (lang/values.py)", OP_SPECS
)
EMITTERS.add(Tracer.emit, Arg)
EMITTERS.add(literal, Literal)
EMITTERS.add(index_value, Index)
EMITTERS.add(unary, Unary)
EMITTERS.add(binary, Binary)
EMITTERS.add(where, Where)
EMITTERS.add(cast, Cast)
EMITTERS.add(broadcast, Broadcast)
EMITTERS.add(reduce, Reduce)
EMITTERS.add(matmul, MatMul)
EMITTERS.add(transpose, Transpose)
EMITTERS.add(reshape, Reshape)
EMITTERS.add(concat, Concat)
EMITTERS.add(iota, Iota)
EMITTERS.add(slice_of, SliceOf)
EMITTERS.add(update, Update)
EMITTERS.add(scan, Scan)
EMITTERS.add(sort, Sort)
EMITTERS.add(gather, Gather)
EMITTERS.add(argmax, ArgMax)
EMITTERS.add(topk, TopK)
EMITTERS.add(histogram, Histogram)
EMITTERS.require_all()
