"""Symbolic tiles, with which a task body computes. They have NumPy's operators and no elements.

A `Tile` is a variable of the tracer, so slice assignment works. A `Scalar` is an index expression
in a body: a coordinate, dim or loop variable. It takes the dtype of the other operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import numpy as np

from ..errors import BadCall, BadDType, NotTraceable
from ..ir.expr import Const, Expr, Node, wrap
from ..ir.tensor import DType
from . import values
from .index_ops import IndexOps, is_condition
from .numpy_calls import numpy_call, refuse_array
from .region_refs import RegionRef, TensorRef
from .shapes import insert_ones, normal_axes, normal_axis, reshape_shape, split_key
from .strides import has_step, strided_slice
from .tile_methods import TileMethods, dtype_of
from .tracer import Tracer, Value, Variable, current


class Scalar(IndexOps):
    """A weakly typed 0-d integer with a known index expression."""

    __slots__ = ("expr",)

    def __init__(self, expr: Node) -> None:
        self.expr = expr

    def as_expr(self) -> Node:
        return current().check_expr(self.expr)

    def wrap_result(self, e: Node) -> Scalar:
        return Scalar(e)

    def apply(self, op: str, other: object, swap: bool = False) -> Any:
        if isinstance(other, float):
            return as_tile(self, DType.f32)._binary(op, other, swap)
        return super().apply(op, other, swap)

    def _logic(self, op: str, other: object, swap: bool = False) -> Any:
        for e in (self.expr, *((wrap(other),) if isinstance(other, Expr | Scalar) else ())):  # type: ignore[arg-type]
            if not is_condition(e):
                raise NotTraceable(f"& or | on '{e}', which is not a condition")
        return self.apply(op, other, swap)

    def __and__(self, other: object) -> Any:
        return self._logic("min", other)

    def __or__(self, other: object) -> Any:
        return self._logic("max", other)

    def __invert__(self) -> Any:
        return self._logic("sub", Const(1), swap=True)

    def __truediv__(self, other: object) -> Tile:
        return as_tile(self, DType.f32)._binary("div", other)

    def __rtruediv__(self, other: object) -> Tile:
        return as_tile(self, DType.f32)._binary("div", other, swap=True)

    def __eq__(self, other: object) -> Any:
        return self.apply("eq", other)

    def __ne__(self, other: object) -> Any:
        return self.apply("ne", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        if isinstance(self.expr, Const):
            return bool(self.expr.value)
        raise NotTraceable(f"the truth of '{self.expr}' is not known when the body is traced")

    def cast(self, dtype: DType) -> Tile:
        return as_tile(self, dtype)

    def __str__(self) -> str:
        return str(self.expr)

    __repr__ = __str__


class Tile(TileMethods, Variable):
    """A tile of a task body."""

    __slots__ = ()
    is_tile: ClassVar[bool] = True
    __hash__ = object.__hash__

    def read(self) -> Value:
        current()
        return self.tracer.read(self)

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int | Scalar, ...]:
        return tuple(s.value if isinstance(s, Const) else Scalar(s) for s in self.value.shape)

    @property
    def ndim(self) -> int:
        return len(self.value.shape)

    def as_expr(self) -> Node:
        """A 0-d integer tile as an index expression."""
        value = self.read()
        if value.index is None:
            hint = "use a 0-d integer tile as an index; write tile * n, not n * tile, for dims"
            if value.shape:
                hint = (
                    "et.gather(x, index, axis) picks entries by an integer tile;"
                    " et.where(cond, x, y) chooses by a condition and keeps the shape"
                )
            raise BadDType(f"a tile {value.type} stands where one integer is needed", hint=hint)
        return value.index

    # ---- arithmetic ------------------------------------------------------------------------

    def _binary(self, op: str, other: object, swap: bool = False) -> Tile:
        a = self.read()
        b = lift(self.tracer, other, a.dtype)
        return Tile(self.tracer, values.binary(self.tracer, op, *((b, a) if swap else (a, b))))

    def _unary(self, op: str) -> Tile:
        return Tile(self.tracer, values.unary(self.tracer, op, self.read()))

    def __add__(self, other: object) -> Tile:
        return self._binary("add", other)

    def __radd__(self, other: object) -> Tile:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: object) -> Tile:
        return self._binary("sub", other)

    def __rsub__(self, other: object) -> Tile:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: object) -> Tile:
        return self._binary("mul", other)

    def __rmul__(self, other: object) -> Tile:
        return self._binary("mul", other, swap=True)

    def __truediv__(self, other: object) -> Tile:
        return self._binary("div", other)

    def __rtruediv__(self, other: object) -> Tile:
        return self._binary("div", other, swap=True)

    def __floordiv__(self, other: object) -> Tile:
        return self._binary("floordiv", other)

    def __rfloordiv__(self, other: object) -> Tile:
        return self._binary("floordiv", other, swap=True)

    def __mod__(self, other: object) -> Tile:
        return self._binary("mod", other)

    def __rmod__(self, other: object) -> Tile:
        return self._binary("mod", other, swap=True)

    def __and__(self, other: object) -> Tile:
        return self._binary("and", other)

    def __rand__(self, other: object) -> Tile:
        return self._binary("and", other, swap=True)

    def __or__(self, other: object) -> Tile:
        return self._binary("or", other)

    def __ror__(self, other: object) -> Tile:
        return self._binary("or", other, swap=True)

    def __xor__(self, other: object) -> Tile:
        return self._binary("xor", other)

    def __rxor__(self, other: object) -> Tile:
        return self._binary("xor", other, swap=True)

    def __lshift__(self, other: object) -> Tile:
        return self._binary("shl", other)

    def __rlshift__(self, other: object) -> Tile:
        return self._binary("shl", other, swap=True)

    def __rshift__(self, other: object) -> Tile:
        return self._binary("shr", other)

    def __rrshift__(self, other: object) -> Tile:
        return self._binary("shr", other, swap=True)

    def __lt__(self, other: object) -> Tile:
        return self._binary("lt", other)

    def __le__(self, other: object) -> Tile:
        return self._binary("le", other)

    def __gt__(self, other: object) -> Tile:
        return self._binary("gt", other)

    def __ge__(self, other: object) -> Tile:
        return self._binary("ge", other)

    def __eq__(self, other: object) -> Tile:  # type: ignore[override]
        return self._binary("eq", other)

    def __ne__(self, other: object) -> Tile:  # type: ignore[override]
        return self._binary("ne", other)

    def __neg__(self) -> Tile:
        return self._unary("neg")

    def __abs__(self) -> Tile:
        return self._unary("abs")

    def __invert__(self) -> Tile:
        return self._unary("not")

    def __pow__(self, other: object) -> Tile:
        """Squares and powers of integers are products, so that all back ends agree."""
        if isinstance(other, int | float) and other == 2:
            return self * self
        if self.dtype.is_int:
            return self._integer_power(other)
        return self._binary("pow", other)

    def __rpow__(self, other: object) -> Tile:
        if isinstance(other, int | float) and other == 2 and self.dtype.is_float:
            return self._unary("exp2")
        return self._binary("pow", other, swap=True)

    def _integer_power(self, exponent: object) -> Tile:
        if isinstance(exponent, bool) or not isinstance(exponent, int) or exponent < 0:
            raise BadDType(
                f"a {self.dtype} tile to the power of {exponent!r}",
                hint="integers have Python integers of 0 or more as powers; else x.cast(et.f32)")
        square, out = self, self * 0 + 1
        while exponent:
            if exponent % 2:
                out = out * square
            exponent //= 2
            square = square * square if exponent else square
        return out

    def __matmul__(self, other: object) -> Any:
        from .composite_functions import matmul

        return matmul(self, other)

    # ---- shapes, reductions -----------------------------------------------------------------

    def sum(self, axis: object = None, keepdims: bool = False) -> Tile:
        return self._reduce("sum", axis, keepdims)

    def max(self, axis: object = None, keepdims: bool = False) -> Tile:
        return self._reduce("max", axis, keepdims)

    def min(self, axis: object = None, keepdims: bool = False) -> Tile:
        return self._reduce("min", axis, keepdims)

    def _reduce(self, op: str, axis: object, keepdims: bool) -> Tile:
        x = self.read()
        axes = normal_axes(axis, len(x.shape))
        return Tile(self.tracer, values.reduce(self.tracer, op, x, axes, keepdims))

    def cast(self, dtype: object) -> Tile:
        """Elements of another dtype; NumPy's dtypes are taken too."""
        return Tile(self.tracer, values.cast(self.tracer, self.read(), dtype_of(dtype)))

    @property
    def T(self) -> Tile:
        return self.transpose()

    def transpose(self, *perm: object) -> Tile:
        x = self.read()
        given = perm[0] if len(perm) == 1 and isinstance(perm[0], tuple | list) else perm
        axes = tuple(normal_axis(p, len(x.shape)) for p in given)
        return Tile(
            self.tracer, values.transpose(self.tracer, x, axes or tuple(range(self.ndim))[::-1])
        )

    def reshape(self, *shape: object) -> Tile:
        x = self.read()
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        wanted = reshape_shape(x.shape, tuple(given))
        return Tile(self.tracer, values.reshape(self.tracer, x, wanted))

    def cumsum(self, axis: object = -1) -> Tile:
        x = self.read()
        k = normal_axis(axis, len(x.shape))
        return Tile(self.tracer, values.scan(self.tracer, "sum", x, k))

    def cumprod(self, axis: object = -1) -> Tile:
        x = self.read()
        k = normal_axis(axis, len(x.shape))
        return Tile(self.tracer, values.scan(self.tracer, "prod", x, k))

    # ---- sub-tiles --------------------------------------------------------------------------

    def __getitem__(self, key: object) -> Tile:
        if has_step(key):
            return strided_slice(self, key)
        x = self.read()
        axes, added = split_key(key, x.shape)
        out = values.slice_of(self.tracer, x, axes)
        out = values.reshape(self.tracer, out, insert_ones(out.shape, added))
        return Tile(self.tracer, out)

    def __setitem__(self, key: object, value: object) -> None:
        if self.is_read_only:
            raise BadCall(
                "a read argument is assigned to", hint="make a copy first: y = x + 0, y[0:4] = .."
            )
        x = self.read()
        axes, added = split_key(key, x.shape)
        if added:
            raise NotTraceable("None in the index of an assignment")
        new = lift(self.tracer, value, x.dtype)
        self.tracer.assign(self, values.update(self.tracer, x, axes, new))

    # ---- what cannot be traced --------------------------------------------------------------

    def __bool__(self) -> bool:
        raise NotTraceable("a tile is used as a Python truth value",
                           hint="et.where(cond, a, b) chooses; & | ~ join conditions, not `and`;"
                           " et.maximum(x, y) is the larger one")

    def __float__(self) -> float:
        raise NotTraceable("a tile is turned into a Python number")

    def __int__(self) -> int:
        raise NotTraceable("a tile is turned into a Python number")

    def __iter__(self) -> Iterator[Tile]:
        raise NotTraceable("a tile is iterated over in Python",
                           hint="x.sum(), x.max() and others reduce it; for k in range(x.shape[0]):"
                           " x[k], or et.range for many")

    def __len__(self) -> int:
        raise NotTraceable("len() of a tile", hint="use x.shape[0]")

    def __contains__(self, item: object) -> bool:
        raise NotTraceable("`in` on a tile")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotTraceable("a tile is turned into a NumPy array",
                           hint="a body is traced: use the functions of et on tiles")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: object, **kwargs: object) -> Any:
        """A NumPy scalar may stand on the left of an operator."""
        return numpy_call(ufunc.__name__, args)

    def __array_function__(
        self, function: Any, types: object, args: tuple[object, ...], kwargs: object
    ) -> Any:
        return numpy_call(function.__name__, ())


def lift(tr: Tracer, x: object, dtype: DType) -> Value:
    """An operand next to a tile of `dtype`. Numbers and indices take that dtype."""
    if isinstance(x, Tile):
        return tr.read(x)
    if isinstance(x, RegionRef | TensorRef):
        raise NotTraceable(
            "a tensor of the program is used inside a task body",
            hint="pass it through reads= and use the argument",
        )
    if isinstance(x, Expr | Scalar):
        return values.index_value(tr, wrap(x), dtype)  # type: ignore[arg-type]
    return _lift_number(tr, x, dtype)


def _lift_number(tr: Tracer, x: object, dtype: DType) -> Value:
    if isinstance(x, np.ndarray) and x.ndim:
        refuse_array()
    if isinstance(x, bool):
        if dtype is not DType.bool_:
            raise BadDType(f"a Python bool next to a {dtype} tile")
        return values.literal(tr, x, dtype)
    if hasattr(x, "__index__"):
        if dtype is DType.bool_:
            raise BadDType(f"the integer {x} next to a bool tile")
        return values.literal(tr, int(x.__index__()), dtype)
    if isinstance(x, float) or (type(x).__module__ == "numpy" and hasattr(x, "__float__")):
        if dtype is not DType.f32:
            raise BadDType(f"the float {x} next to a {dtype} tile")
        return values.literal(tr, float(x), dtype)
    raise NotTraceable(f"{x!r} is used as a tile", hint="tiles mix with numbers and coordinates")


def weak_dtype(*xs: object) -> DType:
    """The dtype of some operands: that of the first tile. Without a tile it is f32 for floats, bool
    for bools, i64 for index expressions and i32 for integers."""
    for x in xs:
        if isinstance(x, Tile):
            return x.dtype
    if any(isinstance(x, float) for x in xs):
        return DType.f32
    if all(isinstance(x, bool) for x in xs):
        return DType.bool_
    return DType.i64 if any(isinstance(x, Expr | Scalar) for x in xs) else DType.i32


def as_tile(x: object, dtype: DType | None = None) -> Tile:
    """A tile, number or index expression as a tile."""
    if isinstance(x, Tile):
        return x
    tr = current()
    return Tile(tr, lift(tr, x, weak_dtype(x) if dtype is None else dtype))
