"""The table of element-wise functions, with dtypes, NumPy meaning and C++ text.

Unary and binary ops of the tile IR name a function. Its operands have one dtype. The result has
the same, except for comparisons. Callers of `meaning` silence NumPy's warnings, because IEEE
results are intended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .tensor import DType

Array = npt.NDArray[Any]
Dtypes = tuple[DType, ...]

FLOAT: Dtypes = (DType.f32,)
INTS: Dtypes = (DType.i32, DType.i64)
BITS: Dtypes = (*INTS, DType.bool_)
NUMERIC: Dtypes = (DType.f32, DType.i32, DType.i64)
ANY: Dtypes = (*NUMERIC, DType.bool_)


@dataclass(frozen=True, slots=True)
class Function:
    """`takes`: the dtypes of operands. `cpp`: C++ and CUDA text, where {0} and {1} are operands and
    {T} is their type. `cpp_bool`: the text for bool operands, if it differs. `gives`: the dtype of
    the result, if it is not that of the operands. `exact`: all back ends give the same bits."""

    name: str
    arity: int
    takes: Dtypes
    meaning: Callable[..., Any]
    cpp: str
    cpp_bool: str = ""
    gives: DType | None = None
    exact: bool = True

    def result(self, dtype: DType) -> DType:
        return dtype if self.gives is None else self.gives

    def text(self, operands: list[str], dtype: DType, ctype: str) -> str:
        form = self.cpp_bool if self.cpp_bool and dtype is DType.bool_ else self.cpp
        return form.format(*operands, T=ctype)


def _rsqrt(x: Array) -> Array:
    return np.asarray(x.dtype.type(1) / np.sqrt(x))


def _sigmoid(x: Array) -> Array:
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(np.negative(x))))


def _min(a: Array, b: Array) -> Array:
    """The first of equal operands; the first NaN."""
    return np.where((a <= b) | (a != a), a, b) if a.dtype.kind == "f" else np.minimum(a, b)


def _max(a: Array, b: Array) -> Array:
    return np.where((a >= b) | (a != a), a, b) if a.dtype.kind == "f" else np.maximum(a, b)


def _erf(x: Array) -> Array:
    """Computed in f64 and rounded once."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), x.dtype)


def _pow(x: Array, y: Array) -> Array:
    """NumPy takes sqrt if all exponents are 0.5, which differs from pow for -0.0 and -inf. Here an
    element with that exponent has the result of pow, whatever the other exponents are."""
    root = np.where(np.isneginf(x), np.inf, np.sqrt(x) + np.zeros((), x.dtype))
    return np.asarray(np.where(y == 0.5, root, np.power(x, y)), x.dtype)


def _unary(
    name: str, takes: Dtypes, meaning: Callable[..., Any], cpp: str, exact: bool = True,
    cpp_bool: str = "",
) -> Function:
    return Function(name, 1, takes, meaning, cpp, cpp_bool, exact=exact)


def _infix(
    name: str, takes: Dtypes, meaning: Callable[..., Any], sign: str, gives: DType | None = None,
    of_bool: str = "",
) -> Function:
    text, bools = (f"({{0}} {s} {{1}})" if s else "" for s in (sign, of_bool))
    return Function(name, 2, takes, meaning, text, bools, gives)


def _call(name: str, takes: Dtypes, meaning: Callable[..., Any], function: str) -> Function:
    return Function(name, 2, takes, meaning, f"{function}<{{T}}>({{0}}, {{1}})")


FUNCTIONS: dict[str, Function] = {row.name: row for row in (
    _unary("neg", NUMERIC, np.negative, "(-{0})"),
    _unary("abs", NUMERIC, np.abs, "et::abs<{T}>({0})"),
    _unary("exp", FLOAT, np.exp, "et::exp({0})", exact=False),
    _unary("log", FLOAT, np.log, "std::log({0})", exact=False),
    _unary("sqrt", FLOAT, np.sqrt, "std::sqrt({0})"),
    _unary("rsqrt", FLOAT, _rsqrt, "et::rsqrt({0})"),
    _unary("tanh", FLOAT, np.tanh, "std::tanh({0})", exact=False),
    _unary("sigmoid", FLOAT, _sigmoid, "et::sigmoid({0})", exact=False),
    _unary("exp2", FLOAT, np.exp2, "std::exp2({0})", exact=False),
    _unary("log2", FLOAT, np.log2, "std::log2({0})", exact=False),
    _unary("sin", FLOAT, np.sin, "std::sin({0})", exact=False),
    _unary("cos", FLOAT, np.cos, "std::cos({0})", exact=False),
    _unary("erf", FLOAT, _erf, "std::erf({0})", exact=False),
    _unary("floor", FLOAT, np.floor, "std::floor({0})"),
    _unary("ceil", FLOAT, np.ceil, "std::ceil({0})"),
    _unary("round", FLOAT, np.rint, "std::rint({0})"),
    _unary("sign", NUMERIC, np.sign, "et::sign<{T}>({0})"),
    _unary("not", BITS, np.invert, "(~{0})", cpp_bool="!{0}"),
    _infix("add", NUMERIC, np.add, "+"),
    _infix("sub", NUMERIC, np.subtract, "-"),
    _infix("mul", NUMERIC, np.multiply, "*"),
    _infix("div", FLOAT, np.divide, "/"),
    _call("floordiv", NUMERIC, np.floor_divide, "et::floor_div"),
    _call("mod", NUMERIC, np.remainder, "et::floor_mod"),
    _call("min", NUMERIC, _min, "et::min"),
    _call("max", NUMERIC, _max, "et::max"),
    Function("pow", 2, FLOAT, _pow, "std::pow({0}, {1})", exact=False),
    _infix("and", BITS, np.bitwise_and, "&", of_bool="&&"),
    _infix("or", BITS, np.bitwise_or, "|", of_bool="||"),
    _infix("xor", BITS, np.bitwise_xor, "^", of_bool="!="),
    _call("shl", INTS, np.left_shift, "et::shift_left"),
    _call("shr", INTS, np.right_shift, "et::shift_right"),
    _infix("lt", NUMERIC, np.less, "<", DType.bool_),
    _infix("le", NUMERIC, np.less_equal, "<=", DType.bool_),
    _infix("gt", NUMERIC, np.greater, ">", DType.bool_),
    _infix("ge", NUMERIC, np.greater_equal, ">=", DType.bool_),
    _infix("eq", ANY, np.equal, "==", DType.bool_),
    _infix("ne", ANY, np.not_equal, "!=", DType.bool_),
)}

UNARY = tuple(f.name for f in FUNCTIONS.values() if f.arity == 1)
BINARY = tuple(f.name for f in FUNCTIONS.values() if f.arity == 2)
