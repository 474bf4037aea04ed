"""Functions of task bodies: `et.exp`, `et.where`, `et.range` and others, each with its op.

`et.min`, `et.max` and `et.equal` take index expressions too, also outside bodies. Functions that
are made of others are in lang/composite_functions.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import BadDType, BadShape, LoopEscape, NotTraceable
from ..ir import expr as ix
from ..ir.elementwise import FUNCTIONS
from ..ir.handler_table import HandlerTable
from ..ir.interval import at_least_zero
from ..ir.tensor import DType
from . import values
from .index_ops import is_index
from .shapes import index_expr, normal_axis
from .symbolic_tile import Scalar, Tile, as_tile, lift, weak_dtype
from .tracer import Variable, current, tracing

# ---- element-wise --------------------------------------------------------------------------


def exp(x: object) -> Tile:
    return _float(x)._unary("exp")


def log(x: object) -> Tile:
    return _float(x)._unary("log")


def sqrt(x: object) -> Tile:
    return _float(x)._unary("sqrt")


def rsqrt(x: object) -> Tile:
    return _float(x)._unary("rsqrt")


def tanh(x: object) -> Tile:
    return _float(x)._unary("tanh")


def sigmoid(x: object) -> Tile:
    return _float(x)._unary("sigmoid")


def exp2(x: object) -> Tile:
    return _float(x)._unary("exp2")


def log2(x: object) -> Tile:
    return _float(x)._unary("log2")


def sin(x: object) -> Tile:
    return _float(x)._unary("sin")


def cos(x: object) -> Tile:
    return _float(x)._unary("cos")


def erf(x: object) -> Tile:
    return _float(x)._unary("erf")


def floor(x: object) -> Tile:
    return _float(x)._unary("floor")


def ceil(x: object) -> Tile:
    return _float(x)._unary("ceil")


def round(x: object) -> Tile:
    """To the nearest integer, halves to the even one, as a float."""
    return _float(x)._unary("round")


def reciprocal(x: object) -> Tile:
    return 1.0 / _float(x)


def sign(x: object) -> Tile:
    """-1, 0 or 1; NaN of NaN."""
    return as_tile(x)._unary("sign")


def pow(x: object, y: object) -> Tile:
    """x ** y, for f32."""
    return _float(x) ** y


def abs(x: object) -> Tile:
    return as_tile(x)._unary("abs")


def _float(x: object) -> Tile:
    return x if isinstance(x, Tile) else as_tile(x, DType.f32)


def minimum(a: object, b: object) -> Any:
    """The smaller, element by element, of tiles, numbers and index expressions."""
    return _pairwise_extremum("min", a, b)


def maximum(a: object, b: object) -> Any:
    """The larger, element by element, of tiles, numbers and index expressions."""
    return _pairwise_extremum("max", a, b)


def min(a: object, *more: object, axis: object = None, keepdims: bool = False) -> Any:
    """The smallest of tiles or index expressions; for one tile `x.min(axis)`."""
    return _extremum("min", a, more, axis, keepdims)


def max(a: object, *more: object, axis: object = None, keepdims: bool = False) -> Any:
    """The largest of tiles or index expressions; for one tile `x.max(axis)`."""
    return _extremum("max", a, more, axis, keepdims)


def _extremum(op: str, a: object, more: tuple[object, ...], axis: object, keepdims: bool) -> Any:
    if not more:
        return _require_tile(a, op)._reduce(op, axis, keepdims)
    if axis is not None or keepdims:
        raise BadShape(f"{op} of several operands over an axis",
                       hint=f"et.{op}imum(x, y) is element by element, x.{op}(axis) reduces one")
    for m in more:
        a = _pairwise_extremum(op, a, m)
    return a


def _pairwise_extremum(op: str, a: object, b: object) -> Any:
    if isinstance(a, Tile):
        return a._binary(op, b)
    if isinstance(b, Tile):
        return b._binary(op, a, swap=True)
    if is_index(a) and is_index(b):
        e = (ix.minimum if op == "min" else ix.maximum)(a, b)  # type: ignore[arg-type]
        return Scalar(e) if tracing() else e
    return as_tile(a, weak_dtype(a, b))._binary(op, b)


def equal(a: object, b: object) -> Any:
    """The condition a == b."""
    if isinstance(a, Tile):
        return a._binary("eq", b)
    if isinstance(b, Tile):
        return b._binary("eq", a, swap=True)
    e = ix.equal(a, b)  # type: ignore[arg-type]
    return Scalar(e) if tracing() else e


def where(cond: object, a: object, b: object) -> Any:
    """a where cond is true, else b."""
    given = (cond, a, b)
    if all(is_index(v) and not isinstance(v, Tile) for v in given):
        e = ix.select(cond, a, b)  # type: ignore[arg-type]
        return Scalar(e) if tracing() else e
    tr = current()
    c = lift(tr, cond, DType.bool_)
    dtype = weak_dtype(a, b)
    return Tile(tr, values.where(tr, c, lift(tr, a, dtype), lift(tr, b, dtype)))


# ---- constants -----------------------------------------------------------------------------


def _extents(shape: object) -> tuple[ix.Node, ...]:
    return tuple(_extent(s) for s in (shape if isinstance(shape, tuple | list) else (shape,)))


def _extent(given: object) -> ix.Node:
    """An extent of a new tile. An extent that the body computes is clamped at 0; the proof shows
    that others are not negative. The extent of another tile keeps its form, so that the two are
    equal by form."""
    tr = current()
    e = tr.check_expr(index_expr(given))
    if e in tr.extents:
        return e
    if isinstance(e, ix.Const) and e.value < 0:
        raise BadShape(f"a tile with the extent {e}")
    return at_least_zero(e) if tr.is_computed(e) else e


def full(shape: object, value: object, dtype: DType = DType.f32) -> Tile:
    """A tile of one value. bf16 and f16 give an f32 tile, u8 an i32 tile."""
    tr = current()
    wanted = _tile_dtype(dtype)
    x = lift(tr, value, wanted)
    if x.shape or x.dtype is not wanted:
        raise BadDType(f"full of {wanted} is filled with {x.type}")
    return Tile(tr, values.broadcast(tr, x, _extents(shape)))


def zeros(shape: object, dtype: DType = DType.f32) -> Tile:
    return full(shape, False if dtype is DType.bool_ else 0, dtype)


def iota(n: object, dtype: DType = DType.i32) -> Tile:
    """0, 1, .., n-1."""
    return Tile(current(), values.iota(current(), _extent(n), dtype))


def _tile_dtype(dtype: object) -> DType:
    if not isinstance(dtype, DType):
        raise BadDType(f"{dtype!r} is not a dtype", hint="dtypes are et.f32, et.i32, ..")
    return dtype.tile_dtype


# ---- whole tiles ---------------------------------------------------------------------------


def concat(tiles: Sequence[object], axis: int = 0) -> Tile:
    tr = current()
    if not isinstance(tiles, tuple | list) or not tiles:
        raise BadShape("concat needs a list of tiles")
    dtype = weak_dtype(*tiles)
    xs = [lift(tr, t, dtype) for t in tiles]
    return Tile(tr, values.concat(tr, xs, normal_axis(axis, len(xs[0].shape))))


def cumsum(x: Tile, axis: int = -1) -> Tile:
    return _require_tile(x, "cumsum").cumsum(axis)


def cumprod(x: Tile, axis: int = -1) -> Tile:
    return _require_tile(x, "cumprod").cumprod(axis)


def sort(x: Tile, axis: int = -1) -> Tile:
    """In ascending order along an axis, NaN last."""
    return _sorted(x, axis, False)


def argsort(x: Tile, axis: int = -1) -> Tile:
    """The i32 indices that sort along an axis: equal elements by index, NaN last."""
    return _sorted(x, axis, True)


def _sorted(x: Tile, axis: int, indices: bool) -> Tile:
    tr, value = current(), _require_tile(x, "sort").read()
    return Tile(tr, values.sort(tr, value, normal_axis(axis, len(value.shape)), indices))


def gather(x: Tile, index: object, axis: int = 0) -> Tile:
    """Entries of x along `axis`, picked by an integer tile."""
    tr, value = current(), _require_tile(x, "gather").read()
    picked = lift(tr, index, DType.i32)
    return Tile(tr, values.gather(tr, value, picked, normal_axis(axis, len(value.shape))))


def argmax(x: Tile, axis: int = -1) -> Tile:
    """Index of the largest on an axis; the lowest wins ties."""
    tile = _with_axis_last(_require_tile(x, "argmax"), axis)
    return Tile(current(), values.argmax(current(), tile.read()))


def _with_axis_last(x: Tile, axis: int) -> Tile:
    """The tile with `axis` moved to the end."""
    at = normal_axis(axis, x.ndim)
    rest = [k for k, _ in enumerate(x.shape) if k != at]
    return x.transpose(*rest, at)


def argmin(x: Tile, axis: int = -1) -> Tile:
    """Index of the smallest on an axis; the lowest wins ties."""
    given = _require_tile(x, "argmin")
    return argmax(~given if given.dtype.is_int else -given, axis)


def topk(x: Tile, k: int) -> tuple[Tile, Tile]:
    """The k largest on the last axis, descending: values and indices."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise BadShape(f"topk with k = {k!r}", hint="k is a Python integer")
    tr = current()
    top, index = values.topk(tr, _require_tile(x, "topk").read(), k)
    return Tile(tr, top), Tile(tr, index)


def histogram(index: Tile, weights: Sequence[object], bins: int) -> Tile:
    """Sums of integer weights by index: element (r, b) is the sum of `weights[r]` where the index
    is b. An index outside the bins is ignored."""
    if isinstance(bins, bool) or not isinstance(bins, int):
        raise BadShape(f"histogram with {bins!r} bins", hint="bins is a Python integer")
    if not isinstance(weights, tuple | list):
        raise BadShape("histogram needs a list of weights")
    tr, at = current(), _require_tile(index, "histogram").read()
    xs = [lift(tr, w, DType.i32) for w in weights]
    return Tile(tr, values.histogram(tr, at, xs, bins))


def _require_tile(x: object, what: str) -> Tile:
    if not isinstance(x, Tile):
        raise NotTraceable(f"{what} of {x!r}, which is not a tile")
    return x


# ---- loops ---------------------------------------------------------------------------------


class range:
    """`for t in et.range(extent)`: a run-time loop. Its body is traced once; t is symbolic."""

    def __init__(self, extent: object) -> None:
        self._tracer = current()
        self._extent = self._tracer.check_expr(index_expr(extent))
        self._state = "new"

    def __iter__(self) -> range:
        if self._state != "new":
            raise NotTraceable("an et.range is used twice", hint="make a new et.range(extent)")
        return self

    def __next__(self) -> Scalar:
        frame = sys._getframe(1)
        if self._state == "new":
            self._state = "open"
            self._before = dict(frame.f_locals)
            var = self._tracer.open_loop(self._extent)
            self._scope = self._tracer.scope
            return Scalar(var)
        if self._state == "open":
            self._state = "closed"
            self._close(frame.f_locals)
        raise StopIteration

    def _close(self, after: dict[str, Any]) -> None:
        if self._tracer.scope is not self._scope:
            raise NotTraceable("`break` or `return` inside an et.range loop")
        for name, old in self._before.items():
            if self._rebound(old, after.get(name, old)):
                raise LoopEscape(
                    f"'{name}' is bound to something else inside an et.range loop, which is traced"
                    " once: the next iteration would not see it"
                )
        self._tracer.close_loop()

    def _rebound(self, old: object, new: object) -> bool:
        """True if a name changes its meaning so that only the first iteration would see it."""
        if new is old:
            return False
        if isinstance(old, Variable):
            used = old in self._scope.phis or old in self._scope.read
            return used and isinstance(new, Variable | Scalar)
        if isinstance(old, int | float) and isinstance(new, int | float):
            return old != new
        if isinstance(old, Scalar | ix.Expr) and isinstance(new, Scalar | ix.Expr):
            before, now = (v.expr if isinstance(v, Scalar) else v for v in (old, new))
            return before != now and self._tracer.is_live(before)  # type: ignore[arg-type]
        return False


# The Python function or operator of each element-wise function.
SPELLINGS: HandlerTable[str, Callable[..., Any]] = HandlerTable(
    "the language (lang/tile_functions.py)", FUNCTIONS
)
SPELLINGS.add(Tile.__neg__, "neg")
SPELLINGS.add(Tile.__invert__, "not")
SPELLINGS.add(abs, "abs")
SPELLINGS.add(exp, "exp")
SPELLINGS.add(log, "log")
SPELLINGS.add(sqrt, "sqrt")
SPELLINGS.add(rsqrt, "rsqrt")
SPELLINGS.add(tanh, "tanh")
SPELLINGS.add(exp2, "exp2")
SPELLINGS.add(log2, "log2")
SPELLINGS.add(sin, "sin")
SPELLINGS.add(cos, "cos")
SPELLINGS.add(erf, "erf")
SPELLINGS.add(floor, "floor")
SPELLINGS.add(ceil, "ceil")
SPELLINGS.add(round, "round")
SPELLINGS.add(sign, "sign")
SPELLINGS.add(pow, "pow")
SPELLINGS.add(sigmoid, "sigmoid")
SPELLINGS.add(Tile.__add__, "add")
SPELLINGS.add(Tile.__sub__, "sub")
SPELLINGS.add(Tile.__mul__, "mul")
SPELLINGS.add(Tile.__truediv__, "div")
SPELLINGS.add(Tile.__floordiv__, "floordiv")
SPELLINGS.add(Tile.__mod__, "mod")
SPELLINGS.add(minimum, "min")
SPELLINGS.add(maximum, "max")
SPELLINGS.add(Tile.__and__, "and")
SPELLINGS.add(Tile.__or__, "or")
SPELLINGS.add(Tile.__xor__, "xor")
SPELLINGS.add(Tile.__lshift__, "shl")
SPELLINGS.add(Tile.__rshift__, "shr")
SPELLINGS.add(Tile.__lt__, "lt")
SPELLINGS.add(Tile.__le__, "le")
SPELLINGS.add(Tile.__gt__, "gt")
SPELLINGS.add(Tile.__ge__, "ge")
SPELLINGS.add(Tile.__eq__, "eq")
SPELLINGS.add(Tile.__ne__, "ne")
SPELLINGS.require_all()
