"""Tile operations on immutable values: dtype rules, explicit broadcasts, one IR op each."""

from __future__ import annotations

from ..errors import BadDType, BadShape
from ..ir.expr import Const, Node, add, maximum, minimum, wrap
from ..ir.tensor import DType
from ..ir.tile import (
    COMPARE,
    ArgMax,
    Binary,
    Broadcast,
    Cast,
    Concat,
    Cumsum,
    Gather,
    Histogram,
    Index,
    Iota,
    Literal,
    MatMul,
    Reduce,
    Reshape,
    SliceOf,
    SubAxis,
    TileType,
    TopK,
    Transpose,
    Unary,
    Update,
    Where,
)
from .index import INDEX_OPS
from .shapes import Shape, fit_into, is_whole, join, require_equal, shape_text, sub_shape
from .trace import Tracer, Value

FLOAT_ONLY = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "div")
NUMERIC = (DType.f32, DType.i32, DType.i64)
INTS = (DType.i32, DType.i64)


def literal(tr: Tracer, value: float, dtype: DType) -> Value:
    kept: float = bool(value) if dtype is DType.bool_ else value
    if dtype in INTS:
        kept = int(value)
        if not -(2 ** (8 * dtype.size - 1)) <= kept < 2 ** (8 * dtype.size - 1):
            raise BadDType(f"{value} does not fit {dtype}")
    elif dtype is DType.f32:
        kept = float(value)
    index = Const(int(kept)) if dtype in INTS else None
    return tr.emit(Literal(kept), TileType(dtype, ()), index)


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
    keep = x.index if dtype in INTS else None
    return tr.emit(Cast(x.id, dtype), TileType(dtype.tile_dtype, x.shape), keep)


def broadcast(tr: Tracer, x: Value, shape: Shape) -> Value:
    """To `shape`, whose axes are those of x, or ones of x repeated."""
    same = len(x.shape) == len(shape) and all(
        a == b or a != Const(1) for a, b in zip(x.shape, shape, strict=True)
    )
    return x if same else tr.emit(Broadcast(x.id), TileType(x.dtype, shape))


def fitted(tr: Tracer, x: Value, type_: TileType, what: str) -> Value:
    """x as something that can be assigned to a place of `type_`."""
    if x.dtype is not type_.dtype:
        raise BadDType(f"{what} is {type_.dtype} and is assigned {x.dtype}")
    fit_into(tr, x.shape, type_.shape)
    return broadcast(tr, x, type_.shape)


def unary(tr: Tracer, op: str, x: Value) -> Value:
    allowed = (DType.bool_,) if op == "not" else NUMERIC
    if op in FLOAT_ONLY:
        allowed = (DType.f32,)
    if x.dtype not in allowed:
        raise BadDType(f"{op} of a {x.dtype} tile")
    index = INDEX_OPS["mul"](Const(-1), x.index) if op == "neg" and x.index is not None else None
    return tr.emit(Unary(op, x.id), x.type, index)


def binary(tr: Tracer, op: str, a: Value, b: Value) -> Value:
    if a.dtype is not b.dtype:
        raise BadDType(f"{op} of a {a.dtype} tile and a {b.dtype} tile")
    if a.dtype not in _operand_dtypes(op):
        hint = "use // for integers, or x.cast(et.f32)" if op == "div" else None
        raise BadDType(f"{op} of {a.dtype} tiles", hint=hint)
    shape = join(tr, a.shape, b.shape)
    dtype = DType.bool_ if op in COMPARE else a.dtype
    x, y = broadcast(tr, a, shape), broadcast(tr, b, shape)
    return tr.emit(Binary(op, x.id, y.id), TileType(dtype, shape), _index_of(op, a, b))


def _operand_dtypes(op: str) -> tuple[DType, ...]:
    if op in ("and", "or"):
        return (DType.bool_,)
    if op in FLOAT_ONLY:
        return (DType.f32,)
    return (*NUMERIC, DType.bool_) if op in ("eq", "ne") else NUMERIC


def _index_of(op: str, a: Value, b: Value) -> Node | None:
    """0-d integers keep their affine form, so that `x[p*16 : p*16+16]` has extent 16."""
    if a.index is None or b.index is None or op in COMPARE:
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
        raise BadDType(f"where chooses between {a.dtype} and {b.dtype}")
    shape = join(tr, join(tr, cond.shape, a.shape), b.shape)
    c, x, y = (broadcast(tr, v, shape) for v in (cond, a, b))
    return tr.emit(Where(c.id, x.id, y.id), TileType(a.dtype, shape))


def reduce(tr: Tracer, op: str, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    if x.dtype not in NUMERIC:
        raise BadDType(f"{op} over a {x.dtype} tile")
    kept = tuple(Const(1) if k in axes else s for k, s in enumerate(x.shape))
    out = x
    for axis in sorted(axes, reverse=True):
        shape = out.shape[:axis] + out.shape[axis + 1 :]
        out = tr.emit(Reduce(op, out.id, axis), TileType(x.dtype, shape))
    return reshape(tr, out, kept) if keepdims and axes else out


def matmul(tr: Tracer, a: Value, b: Value) -> Value:
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise BadShape(f"@ of shapes {shape_text(a.shape)} and {shape_text(b.shape)}",
                       hint="both sides need two axes; use x[:, None] or x[None, :]")
    if a.dtype is not DType.f32 or b.dtype is not DType.f32:
        raise BadDType(f"@ of {a.dtype} and {b.dtype}", hint="@ multiplies f32: x.cast(et.f32)")
    require_equal(tr, a.shape[1], b.shape[0],
                  f"@ of shapes {shape_text(a.shape)} and {shape_text(b.shape)}: its inner axes")
    return tr.emit(MatMul(a.id, b.id), TileType(DType.f32, (a.shape[0], b.shape[1])))


def transpose(tr: Tracer, x: Value, perm: tuple[int, ...]) -> Value:
    if sorted(perm) != list(range(len(x.shape))):
        raise BadShape(f"transpose of {len(x.shape)} axes by {perm}")
    if perm == tuple(range(len(perm))):
        return x
    return tr.emit(Transpose(x.id, perm), TileType(x.dtype, tuple(x.shape[k] for k in perm)))


def reshape(tr: Tracer, x: Value, shape: Shape) -> Value:
    if shape == x.shape:
        return x
    return tr.emit(Reshape(x.id), TileType(x.dtype, shape), x.index if not shape else None)


def concat(tr: Tracer, xs: list[Value], axis: int) -> Value:
    first = xs[0]
    total: Node = wrap(0)
    for x in xs:
        if x.dtype is not first.dtype:
            raise BadDType(f"concat of {first.dtype} and {x.dtype}")
        what = f"concat of {shape_text(first.shape)} and {shape_text(x.shape)}: other axes"
        if len(x.shape) != len(first.shape):
            raise BadShape(f"{what} differ in number")
        for k, (s, t) in enumerate(zip(first.shape, x.shape, strict=True)):
            if k != axis:
                require_equal(tr, s, t, what)
        total = add(total, x.shape[axis])
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    return tr.emit(Concat(tuple(x.id for x in xs), axis), TileType(first.dtype, shape))


def iota(tr: Tracer, n: Node, dtype: DType) -> Value:
    if dtype not in INTS:
        raise BadDType(f"iota of {dtype}", hint="iota is i32 or i64; cast it for others")
    return tr.emit(Iota(), TileType(dtype, (tr.check_expr(n),)))


def slice_of(tr: Tracer, x: Value, axes: tuple[SubAxis, ...]) -> Value:
    if is_whole(axes, x.shape):
        return x
    return tr.emit(SliceOf(x.id, axes), TileType(x.dtype, sub_shape(axes, x.shape)))


def update(tr: Tracer, x: Value, axes: tuple[SubAxis, ...], value: Value) -> Value:
    place = TileType(x.dtype, sub_shape(axes, x.shape))
    new = fitted(tr, value, place, "the tile")
    if is_whole(axes, x.shape):
        return new if new.shape == x.shape else Value(new.id, x.type, new.index)
    return tr.emit(Update(x.id, axes, new.id), x.type)


def cumsum(tr: Tracer, x: Value, axis: int) -> Value:
    if x.dtype not in NUMERIC:
        raise BadDType(f"cumsum over a {x.dtype} tile")
    return tr.emit(Cumsum(x.id, axis), x.type)


def gather(tr: Tracer, x: Value, index: Value, axis: int) -> Value:
    if index.dtype not in INTS:
        raise BadDType(f"gather by a {index.dtype} tile", hint="the index is an i32 or i64 tile")
    shape = x.shape[:axis] + index.shape + x.shape[axis + 1 :]
    return tr.emit(Gather(x.id, index.id, axis), TileType(x.dtype, shape))


def argmax(tr: Tracer, x: Value) -> Value:
    if not x.shape or x.dtype not in NUMERIC:
        raise BadShape(f"argmax of {x.type}", hint="argmax is over the last axis of numbers")
    return tr.emit(ArgMax(x.id), TileType(DType.i32, x.shape[:-1]))


def topk(tr: Tracer, x: Value, k: int) -> tuple[Value, Value]:
    if not x.shape or x.dtype not in NUMERIC:
        raise BadShape(f"topk of {x.type}", hint="topk is over the last axis of numbers")
    last = x.shape[-1]
    if k < 1 or (isinstance(last, Const) and last.value < k):
        raise BadShape(f"topk of {k} from an axis of extent {last}")
    shape = (*x.shape[:-1], Const(k))
    values = tr.emit(TopK(x.id, k, False), TileType(x.dtype, shape))
    return values, tr.emit(TopK(x.id, k, True), TileType(DType.i32, shape))


def histogram(tr: Tracer, index: Value, weights: list[Value], bins: int) -> Value:
    if index.dtype not in INTS or any(w.dtype is not DType.i32 for w in weights):
        kinds = ", ".join(str(x.dtype) for x in (index, *weights))
        raise BadDType(f"histogram of {kinds}",
                       hint="the index is i32 or i64 and weights are i32: floats have no exact sum")
    shape = index.shape
    for w in weights:
        shape = join(tr, shape, w.shape)
    if len(shape) != 1 or not weights or bins < 1:
        raise BadShape(f"histogram of {index.type} in {bins} bins, with {len(weights)} weights",
                       hint="the index has one axis, and there is a weight and a bin at least")
    at, *shown = (broadcast(tr, x, shape).id for x in (index, *weights))
    type_ = TileType(DType.i32, (Const(len(weights)), Const(bins)))
    return tr.emit(Histogram(at, tuple(shown)), type_)
