"""The fixed meaning of tile arithmetic against formulas written independently, in float64, in
exact fractions or in plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eventtensor.interp import numbers
from eventtensor.ir.elementwise import BINARY, UNARY
from eventtensor.ir.tensor import DType

F, I32, I64, B = DType.f32, DType.i32, DType.i64, DType.bool_


@pytest.fixture(autouse=True)
def ieee() -> Iterator[None]:
    """Overflow, division by zero and NaN are meant here."""
    with np.errstate(all="ignore"):
        yield


def floats(*shape: int, seed: int = 0, low: float = -3, high: float = 3) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, seed: int = 0, kind: Any = np.int32) -> np.ndarray:
    found = np.random.default_rng(seed).integers(-20, 20, shape)
    return np.asarray(found, kind)


# ---- element-wise --------------------------------------------------------------------------

FORMULAS = {
    "neg": lambda x: -x,
    "abs": abs,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "exp2": lambda x: 2.0**x,
    "log2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "erf": math.erf,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "sign": lambda x: math.copysign(1, x),
}


@pytest.mark.parametrize("op", sorted(FORMULAS))
def test_a_float_function_is_within_a_few_ulp_of_the_formula(op: str) -> None:
    x = floats(5, 7, low=0.01, high=4)
    want = [FORMULAS[op](float(v)) for v in x.flat]
    np.testing.assert_allclose(numbers.elementwise(op, x).ravel(), want, rtol=5e-7)


def test_every_unary_op_is_known() -> None:
    assert set(FORMULAS) | {"not"} == set(UNARY)
    assert not numbers.elementwise("not", np.array([True]))[0]


def test_rsqrt_and_sigmoid_round_after_every_step() -> None:
    x = floats(1000, low=0.01)
    root = np.array([np.float32(math.sqrt(float(v))) for v in x])
    one_over = np.array([np.float32(1.0 / float(r)) for r in root])
    np.testing.assert_array_equal(numbers.elementwise("rsqrt", x), one_over)
    below = np.array([np.float32(1.0 + float(e)) for e in np.exp(-x)])
    squashed = np.array([np.float32(1.0 / float(b)) for b in below])
    np.testing.assert_array_equal(numbers.elementwise("sigmoid", x), squashed)


def py_floordiv(a: int, b: int) -> int:
    return 0 if b == 0 else a // b


def py_mod(a: int, b: int) -> int:
    return 0 if b == 0 else a % b


COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
INT_BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": py_floordiv, "mod": py_mod, "min": min, "max": max,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("op", sorted(INT_BINARY))
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_an_integer_op_is_python_arithmetic(op: str, kind: Any) -> None:
    a, b = ints(6, 9, seed=1, kind=kind), ints(6, 9, seed=2, kind=kind)
    want = [INT_BINARY[op](int(x), int(y)) for x, y in zip(a.flat, b.flat, strict=True)]
    got = numbers.elementwise(op, a, b)
    assert got.ravel().tolist() == want and got.dtype == kind


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_a_float_op_is_the_double_result_rounded_once(op: str) -> None:
    a, b = floats(50, seed=1), floats(50, seed=2)
    wide = {"add": a.astype(float) + b, "sub": a.astype(float) - b,
            "mul": a.astype(float) * b, "div": a.astype(float) / b}[op]
    np.testing.assert_array_equal(numbers.elementwise(op, a, b), wide.astype(np.float32))


def test_every_binary_op_is_known() -> None:
    assert set(INT_BINARY) | {"div", "pow", "shl", "shr", *COMPARE} == set(BINARY)


def test_a_power_is_that_of_python() -> None:
    a, b = floats(40, low=0.1, seed=1), floats(40, seed=2)
    want = [float(x) ** float(y) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(numbers.elementwise("pow", a, b), want, rtol=5e-7)


@pytest.mark.parametrize(("kind", "bits"), [(np.int32, 32), (np.int64, 64)])
def test_a_shift_moves_bits_out_and_beyond_the_width_moves_all(kind: Any, bits: int) -> None:
    by = np.array([0, 1, bits - 1, bits, bits + 7, -1, -bits], kind)
    for value in (1, -1, 5, -20, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))):
        far = [k if 0 <= k < bits else bits for k in by.tolist()]
        left = [value << k & 2**bits - 1 for k in far]
        wrapped = [x - 2**bits if x >= 2 ** (bits - 1) else x for x in left]
        x = np.full(by.shape, value, kind)
        assert numbers.elementwise("shl", x, by).tolist() == wrapped
        assert numbers.elementwise("shr", x, by).tolist() == [value >> k for k in far]


def test_integers_wrap() -> None:
    top = np.array([2**31 - 1], np.int32)
    assert numbers.elementwise("add", top, np.array([1], np.int32))[0] == -(2**31)
    assert numbers.elementwise("neg", np.array([-(2**31)], np.int32))[0] == -(2**31)


def test_min_and_max_pass_nan_on_and_keep_the_first_of_equals() -> None:
    nan = np.float32(np.nan)
    a, b = np.array([nan, 1, 0.0, -0.0], np.float32), np.array([1, nan, -0.0, 0.0], np.float32)
    for op in ("min", "max"):
        got = numbers.elementwise(op, a, b)
        assert np.isnan(got[:2]).all()
        assert np.signbit(got[2:]).tolist() == [False, True]


@pytest.mark.parametrize("op", COMPARE)
def test_a_comparison_gives_bools(op: str) -> None:
    a, b = ints(40, seed=1), ints(40, seed=2)
    want = [eval(f"{x} {COMPARE[op]} {y}") for x, y in zip(a, b, strict=True)]
    assert numbers.elementwise(op, a, b).tolist() == want


# ---- casts ---------------------------------------------------------------------------------


def test_a_cast_to_an_integer_truncates_saturates_and_makes_zero_of_nan() -> None:
    x = np.array([2.9, -2.9, 3e9, -3e9, np.nan, np.inf], np.float32)
    got = numbers.cast(x, I32)
    assert got.tolist() == [2, -2, 2**31 - 1, -(2**31), 0, 2**31 - 1]
    wide = numbers.cast(np.array([1e19, -1e19, 2.0**40], np.float32), I64)
    assert wide.tolist() == [2**63 - 1, -(2**63), 2**40]


def test_a_float_reaches_u8_through_i32() -> None:
    x = np.array([300.7, -1.0, 1e16], np.float32)
    assert numbers.cast(x, DType.u8).tolist() == [44, 255, 255]


def test_a_cast_to_bf16_rounds_to_nearest_even_and_gives_f32() -> None:
    step = 2.0**-7
    x = np.array([1 + step / 2, 1 + 3 * step / 2, 1 + step * 0.51, -1.0], np.float32)
    got = numbers.cast(x, DType.bf16)
    assert got.dtype == np.float32
    assert got.tolist() == [1.0, 1 + 2 * step, 1 + step, -1.0]


def test_a_cast_to_f16_rounds_to_nearest_even_and_overflows_to_infinity() -> None:
    step = 2.0**-10
    x = np.array([1 + step / 2, 1 + 3 * step / 2, 65520, 1e6], np.float32)
    assert numbers.cast(x, DType.f16).tolist() == [1.0, 1 + 2 * step, math.inf, math.inf]


def test_integer_casts_wrap_and_bools_are_zero_and_one() -> None:
    x = np.array([255, 256, -1], np.int32)
    assert numbers.cast(x, DType.u8).tolist() == [255, 0, 255]
    assert numbers.cast(np.array([2**32 + 5], np.int64), I32).tolist() == [5]
    assert numbers.cast(np.array([0.0, 0.5, np.nan], np.float32), B).tolist() == [0, 1, 1]
    assert numbers.cast(np.array([True, False]), F).tolist() == [1.0, 0.0]


# ---- along an axis -------------------------------------------------------------------------


def lane_sum_by_hand(xs: list[np.float32]) -> np.float32:
    lanes = [np.float32(0)] * 16
    for k, x in enumerate(xs):
        lanes[k % 16] = np.float32(lanes[k % 16] + x)
    for width in (8, 4, 2, 1):
        lanes = [np.float32(lanes[k] + lanes[k + width]) for k in range(width)]
    return lanes[0]


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33, 200])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_sum_runs_in_sixteen_lanes_and_a_halving_tree(n: int, axis: int) -> None:
    x = floats(n, 3, seed=n) * np.float32(10.0) ** ints(n, 3, seed=n)
    x = x.astype(np.float32)
    want = [lane_sum_by_hand(list(x[:, c])) for c in range(3)]
    given = np.ascontiguousarray(x if axis == 0 else x.T)
    got = numbers.lane_sum(given, axis)
    np.testing.assert_array_equal(got, want)


def test_the_order_of_a_sum_matters_on_such_data() -> None:
    x = (floats(200, seed=3) * np.float32(10.0) ** ints(200, seed=4)).astype(np.float32)
    plain = np.float32(0)
    for v in x:
        plain = np.float32(plain + v)
    assert numbers.lane_sum(x, 0) != plain


def test_an_integer_sum_wraps() -> None:
    x = np.full(40, 2**30, np.int32)
    want = (40 * 2**30 + 2**31) % 2**32 - 2**31
    assert numbers.lane_sum(x, 0) == want


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("axis", [0, 1])
def test_min_and_max_reduce_an_axis(op: str, axis: int) -> None:
    x = floats(7, 5)
    pick = {"min": min, "max": max}[op]
    rows = x.T.tolist() if axis == 0 else x.tolist()
    got = numbers.extreme(op, x, axis)
    assert got.tolist() == [pick(r) for r in rows]


def test_an_extreme_of_a_nan_is_nan_and_of_nothing_the_identity() -> None:
    assert np.isnan(numbers.extreme("max", np.array([1, np.nan, 2], np.float32), 0))
    for op, value in (("max", -math.inf), ("min", math.inf)):
        assert numbers.extreme(op, np.zeros(0, np.float32), 0) == value
    for op, value in (("max", -(2**31)), ("min", 2**31 - 1)):
        assert numbers.extreme(op, np.zeros(0, np.int32), 0) == value


@pytest.mark.parametrize("axis", [0, 1])
def test_cumsum_adds_in_index_order(axis: int) -> None:
    x = floats(20, 6)
    rows = x.T if axis == 0 else x
    want = []
    for row in rows:
        total, sums = np.float32(0), []
        for v in row:
            total = np.float32(total + v)
            sums.append(float(total))
        want.append(sums)
    got = numbers.scan("sum", x, axis)
    assert (got.T if axis == 0 else got).tolist() == want


@pytest.mark.parametrize("axis", [0, 1])
def test_cumprod_multiplies_in_index_order(axis: int) -> None:
    x = floats(20, 6, low=0.5, high=1.5)
    rows = x.T if axis == 0 else x
    want = []
    for row in rows:
        total, products = np.float32(1), []
        for v in row:
            total = np.float32(total * v)
            products.append(float(total))
        want.append(products)
    got = numbers.scan("prod", x, axis)
    assert (got.T if axis == 0 else got).tolist() == want


# ---- matmul --------------------------------------------------------------------------------


def fma(a: float, b: float, c: float) -> np.float32:
    """One rounding, through exact rational numbers."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]

    def cost(v: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(v)) - exact), int(v.view(np.int32)) & 1

    return min(around, key=cost)


@pytest.mark.parametrize("dtype", (DType.f32, DType.bf16, DType.f16))
@pytest.mark.parametrize("steps", (1, 40, 150))
def test_matmul_is_a_chain_of_fused_multiply_adds(dtype: DType, steps: int) -> None:
    a, b = (x.astype(dtype.numpy).astype(np.float32)
            for x in (floats(3, steps, seed=5), floats(steps, 4, seed=6)))
    got = numbers.matmul(a, b)
    for m in range(3):
        for n in range(4):
            acc = np.float32(0)
            for k in range(steps):
                acc = fma(float(a[m, k]), float(b[k, n]), float(acc))
            assert got[m, n] == acc


def test_a_fused_step_is_rounded_once_where_two_roundings_differ() -> None:
    """1 + 2^-23 + 2^-24 - 2^-70 lies just below a tie; an f64 sum loses the tail, rounds up."""
    eps = 2.0**-23
    a = np.array([[1 + eps, 2.0**-12 * (1 + eps)]], np.float32)
    b = np.array([[1.0], [2.0**-12 * (1 - eps)]], np.float32)
    assert numbers.matmul(a, b)[0, 0] == np.float32(1 + eps)
    wide = float(a[0, 0]) + float(a[0, 1]) * float(b[1, 0])
    assert np.float32(wide) == np.float32(1 + 2 * eps)


def test_matmul_over_nothing_is_zero_and_passes_nan_on() -> None:
    nothing = np.zeros((2, 0), np.float32)
    assert not numbers.matmul(nothing, nothing.T).any()
    bad = np.array([[np.inf, 1.0]], np.float32)
    zero = np.zeros((2, 1), np.float32)
    assert np.isnan(numbers.matmul(bad, zero))[0, 0]
