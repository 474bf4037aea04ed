"""Tracing task bodies: every tile operation, its shape and dtype rules, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import BadDType
from eventtensor.ir.elementwise import FUNCTIONS
from eventtensor.ir.tile import Binary, Body, Let, Literal
from eventtensor.ir.tile_text import body_lines

N = et.dim("n", max=4096)


def trace(fn: Callable[..., object], out: object = (8, 4), dtype: et.DType = et.f32) -> Body:
    """The body of `fn(x, y, k, b, out, *, i, n)`: x f32[8, 4], y f32[4, 8], k i32[8], b bool[8, 4];
    `out` is a constant shape that the task writes."""
    p = et.Program("p")
    x = p.input("x", (8, 4), et.f32)
    y = p.input("y", (4, 8), et.f32)
    k = p.input("k", (8,), et.i32)
    b = p.input("b", (8, 4), et.bool_)
    z = p.output("z", (N, *out), dtype)
    p.call(et.task(name="t")(fn), grid=(N,), reads=[x, y, k, b],
           writes=lambda i: z[(i, *(slice(None) for _ in out))])
    return p.build().calls[0].call.body


def ops(body: Body) -> list[str]:
    """Statements without arguments."""
    return [s for s in body_lines(body) if not s.startswith("arg ") and " = arg(" not in s]


def test_arithmetic_traces_op_by_op():
    def f(x, y, k, b, out):
        out[:] = (x + x) * x - x / x

    assert ops(trace(f)) == [
        "%1 = add(%0, %0) : f32[8, 4]",
        "%2 = mul(%1, %0) : f32[8, 4]",
        "%3 = div(%0, %0) : f32[8, 4]",
        "%4 = sub(%2, %3) : f32[8, 4]",
        "store out[0:8, 0:4] = %4",
    ]


def test_python_numbers_take_the_tiles_dtype():
    def f(x, y, k, b, out):
        out[:] = x + 1
        out[:] = 2.5 - x
        out[:] = np.float32(0.5)

    literals = [s.op.value for s in trace(f).stmts if isinstance(s, Let)
                and isinstance(s.op, Literal)]
    assert literals == [1.0, 2.5, 0.5] and all(isinstance(v, float) for v in literals)


def test_coordinates_and_dims_are_weakly_typed_index_expressions():
    def f(x, y, k, b, out, *, i, n):
        out[:] = x * (n - i) + i // 2

    assert ops(trace(f)) == [
        "%1 = index(-i + n) : i64[]",
        "%2 = cast(%1, f32) : f32[]",
        "%3 = broadcast(%2) : f32[8, 4]",
        "%4 = mul(%0, %3) : f32[8, 4]",
        "%5 = index(i//2) : i64[]",
        "%6 = cast(%5, f32) : f32[]",
        "%7 = broadcast(%6) : f32[8, 4]",
        "%8 = add(%4, %7) : f32[8, 4]",
        "store out[0:8, 0:4] = %8",
    ]


@pytest.mark.parametrize("make", [
    lambda x, i: i * x, lambda x, i: i + x, lambda x, i: i - x, lambda x, i: i / x,
    lambda x, i: i // x, lambda x, i: i % x, lambda x, i: et.min(i, x), lambda x, i: i * 0.5 + x,
    lambda x, i: 1 / (i + 1) + x, lambda x, i: i / 2 + x, lambda x, i: i.cast(et.f32) + x,
    lambda x, i: et.where(i == 0, x, 0.0), lambda x, i: et.where((i > 0) & ~(i >= 5), x, 1),
    lambda x, i: et.where((i > 0) & (x > 0), x, 1), lambda x, i: et.where(i != 0, 1.0, x),
    lambda x, i: et.where(et.equal(x, i) | (i < 3), x, 1),
])
def test_coordinates_mix_with_tiles_on_either_side(make: Callable[..., object]):
    def f(x, y, k, b, out, *, i):
        out[:] = make(x, i)

    assert trace(f).stmts


def test_functions_of_coordinates_alone_stay_index_expressions():
    def f(x, y, k, b, out, *, i, n):
        m = et.max(et.min(i, 3), n - 4096, 0)
        out[:] = x + et.where(i < 3, m, 1)

    assert "index(select((i + 1 <= 3), max(0, max(min(3, i), n - 4096)), 1))" in ops(trace(f))[0]


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "abs"])
def test_unary_functions(name: str):
    def f(x, y, k, b, out):
        out[:] = getattr(et, name)(x)

    assert ops(trace(f))[0] == f"%1 = {name}(%0) : f32[8, 4]"


def test_comparisons_logic_and_where():
    def f(x, y, k, b, out):
        out[:] = et.where((x < 1.0) & ~b | (x == x), x, 0.0)

    found = "\n".join(ops(trace(f)))
    for part in ("lt(", ": bool[8, 4]", "not(%1)", "and(", "eq(", "or(", "where("):
        assert part in found


def test_minimum_maximum_and_negation():
    def f(x, y, k, b, out):
        out[:] = -et.minimum(x, 1.0) + et.maximum(0.0, abs(x)) + et.max(x, x, 3)

    found = "\n".join(ops(trace(f)))
    assert found.count("max(") == 3 and "min(" in found and "neg(" in found


def test_broadcasting_is_explicit():
    def f(x, y, k, b, out):
        out[:] = x + x.sum(axis=1)[:, None] + x.max(axis=0, keepdims=True)

    found = ops(trace(f))
    assert "%1 = sum(%0, axis=1) : f32[8]" in found
    assert "%2 = reshape(%1) : f32[8, 1]" in found
    assert "%3 = broadcast(%2) : f32[8, 4]" in found
    assert sum("broadcast" in line for line in found) == 2


def test_reductions_over_several_axes_go_last_axis_first():
    def f(x, y, k, b, out):
        out[:] = x.sum() + x.max(axis=(0, 1)) + x.min(axis=-1).min()

    found = "\n".join(ops(trace(f, out=())))
    assert "sum(%0, axis=1) : f32[8]" in found and "axis=0) : f32[]" in found
    assert "store out[] =" in found


def test_matmul_transpose_reshape_concat():
    def f(x, y, k, b, out):
        z = x @ y
        w = et.concat([y.T, x.transpose(0, 1), x.reshape(8, 4), x.reshape((-1, 4))], axis=1)
        out[:] = (z @ w).transpose((1, 0)).reshape(16 * 8)

    found = ops(trace(f, out=(128,)))
    assert "%2 = matmul(%0, %1) : f32[8, 8]" in found
    assert "%3 = transpose(%1, perm=[1, 0]) : f32[8, 4]" in found
    assert "%4 = concat(%3, %0, %0, %0, axis=1) : f32[8, 16]" in found


def test_makers_gather_cumsum_argmax_and_topk():
    def f(x, y, k, b, out, *, n):
        top, where = et.topk(x, 2)
        picked = et.gather(x, et.iota(8) % 8, axis=0).cumsum(axis=0)
        out[:] = picked + et.zeros((8, 4)) + et.full((4,), 2, et.bf16)
        out[:, 0] = et.argmax(x).cast(et.f32)
        out[:, 0:2] = top + where.cast(et.f32) + et.cumsum(top)
        out[0:2, :] = et.histogram(k, [1, k * 2], 4).cast(et.f32)

    found = "\n".join(ops(trace(f)))
    for part in ("iota() : i32[8]", "gather(%0, ", "cumsum(", "argmax(%0) : i32[8]",
                 "topk_values(%0, k=2) : f32[8, 2]", "topk_indices(%0, k=2) : i32[8, 2]",
                 "histogram(", " : i32[2, 4]", "store out[0:8, 0] = ", "store out[0:8, 0:2] = "):
        assert part in found


def test_casts_round_to_storage_and_give_the_tile_dtype():
    def f(x, y, k, b, out):
        out[:] = x.cast(et.bf16) + k.cast(et.f32)[:, None] + x.cast(et.f32)

    found = ops(trace(f))
    assert "%2 = cast(%0, bf16) : f32[8, 4]" in found
    assert "%3 = cast(%1, f32) : f32[8]" in found and len(found) == 7


def test_slicing_with_constants_coordinates_and_scalars_of_tiles():
    def f(x, y, k, b, out, *, i):
        s = k[0]
        out[0, :] = x[1]
        out[1:3, -1] = x[-2:, 0]
        out[2, :] = x[s]
        out[3, :] = x[i % 8, ...]
        out[4:6] = x[s * 2 : s * 2 + 2]

    found = "\n".join(ops(trace(f)))
    assert "slice(%0[1, 0:4]) : f32[4]" in found
    assert "slice(%0[6:8, 0]) : f32[2]" in found
    assert "slice(%0[%2, 0:4]) : f32[4]" in found
    assert "slice(%0[i%8, 0:4]) : f32[4]" in found
    assert "slice(%0[%2*2:%2*2 + 2, 0:4]) : f32[min(2, max(-max(%2*2, 0) + 8, 0)), 4]" in found
    assert "store out[1:3, 3] = " in found


def test_slice_assignment_is_a_functional_update():
    def f(x, y, k, b, out):
        t = x + 0.0
        old = t[:]
        t[0:2] = 1.0
        t[:, 3] = x[:, 0]
        out[:] = t + old

    found = ops(trace(f))
    assert "%4 = broadcast(%3) : f32[2, 4]" not in found
    updates = [line for line in found if "update(" in line]
    assert len(updates) == 2 and "[0:2, 0:4]" in updates[0] and "[0:8, 3]" in updates[1]
    assert found[-2].startswith("%") and "add(" in found[-2] and "%3)" in found[-2]


def test_a_run_time_extent_is_recorded_for_the_proof():
    p = et.Program("p")
    a, c = p.input("a", (N,), et.f32), p.output("c", (N,), et.f32)

    def f(x, out):
        out[:] = x + et.zeros((32,))

    p.call(et.task(f), grid=(N.tiles(32),), reads=lambda i: a[i * 32 : i * 32 + 32],
           writes=lambda i: c[i * 32 : i * 32 + 32])
    body = p.build().calls[0].call.body
    (pair,) = body.equal_extents
    assert {str(e) for e in pair} == {"32", "min(-i*32 + n, 32)"}


def test_an_extent_is_owed_once_and_a_constant_wins():
    p = et.Program("p")
    a, c = p.input("a", (N,), et.f32), p.output("c", (N,), et.f32)

    def f(x, out):
        y = x + et.zeros((32,))
        out[:] = et.zeros((32,)) + x + y

    p.call(et.task(f), grid=(N.tiles(32),), reads=lambda i: a[i * 32 : i * 32 + 32],
           writes=lambda i: c[i * 32 : i * 32 + 32])
    body = p.build().calls[0].call.body
    assert len(body.equal_extents) == 1
    sums = [str(s.type) for s in body.stmts if isinstance(s, Let) and isinstance(s.op, Binary)]
    assert sums == ["f32[32]"] * 3


def test_equal_scalars_are_one_value_and_signed_zeros_are_two():
    def f(x, y, k, b, out, *, i):
        out[:] = (x + 1) * i + (x + 1.0) * i + -0.0 * x + 0.0 * x

    found = ops(trace(f))
    assert sum("index(" in line for line in found) == 1
    assert [line.split(" = ")[1] for line in found if "literal" in line] == [
        "literal(1.0) : f32[]", "literal(-0.0) : f32[]", "literal(0.0) : f32[]",
    ]


def test_dead_values_are_dropped_and_ids_are_dense():
    def f(x, y, k, b, out):
        _ = et.exp(x) @ y
        out[:] = x * x

    assert [s.id for s in trace(f).stmts if isinstance(s, Let)] == [0, 1]


def test_shape_and_dtype_of_tiles_are_visible_in_the_body():
    def f(x, y, k, b, out):
        assert x.shape == (8, 4) and x.dtype is et.f32 and x.ndim == 2
        assert out.shape == (8, 4) and out.dtype is et.f32
        out[:] = x

    trace(f)


def test_a_body_may_call_other_tasks_as_functions():
    @et.task
    def double(x, out):
        out[:] = x * 2

    def f(x, y, k, b, out):
        double(x, out)

    assert "mul(" in ops(trace(f))[2]


def test_stored_dtype_follows_the_tensor():
    def f(x, y, k, b, out):
        out[:] = k[:, None] + 1

    assert trace(f, dtype=et.u8).args[-1].storage is et.u8


def test_infinities_and_nan_are_literals():
    def f(x, y, k, b, out):
        out[:] = et.where(x > -math.inf, x, math.nan)

    found = "\n".join(ops(trace(f)))
    assert "literal(-inf)" in found and "literal(nan)" in found


@pytest.mark.parametrize("name", ["exp2", "log2", "sin", "cos", "erf", "floor", "ceil", "round",
                                  "sign"])
def test_functions_of_one_tile(name: str):
    def f(x, y, k, b, out):
        out[:] = getattr(et, name)(x)

    assert ops(trace(f))[0] == f"%1 = {name}(%0) : f32[8, 4]"


@pytest.mark.parametrize("exponents", [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 2.0]])
def test_a_power_does_not_hang_on_the_exponents_of_other_elements(exponents):
    power = FUNCTIONS["pow"].meaning
    x = np.array([-np.inf, -0.0, 4.0, 3.0], np.float32)
    for y in (np.array(exponents, np.float32), *([np.float32(0.5)] if exponents[3] == 0.5 else [])):
        with np.errstate(all="ignore"):
            found = power(x, y)
        assert found.dtype == np.float32
        assert found[0] == np.inf and found[2] == 2.0
        assert found[1] == 0 and not np.signbit(found[1])


def test_powers_are_products_where_they_can_be():
    def f(x, y, k, b, out):
        out[:] = x**2 + x**1.5 + 2.0**x + 3.0**x + (k**5).sum().cast(et.f32)

    found = [s.op.op for s in trace(f).stmts if isinstance(s, Let) and hasattr(s.op, "op")]
    assert found.count("pow") == 2 and found.count("exp2") == 1
    assert found.count("mul") == 1 + 1 + 4  # x * x; k * 0; k^2, k^4 and two products


def test_bits_of_integers():
    def f(x, y, k, b, out):
        out[:] = ((((k & 3) | 8) ^ ~k) << 2 >> k).sum().cast(et.f32) + x

    found = [s.op.op for s in trace(f).stmts if isinstance(s, Let) and hasattr(s.op, "op")]
    assert found[:6] == ["and", "or", "not", "xor", "shl", "shr"]


@pytest.mark.parametrize(("make", "says"), [
    (lambda x, k, b: x & x, "and of f32 tiles"), (lambda x, k, b: x << x, "shl of f32 tiles"),
    (lambda x, k, b: et.floor(k), "floor of a i32 tile"),
    (lambda x, k, b: k**k, "a i32 tile to the power of"), (lambda x, k, b: k**-1, "power of -1"),
    (lambda x, k, b: 2.0**k, "the float 2.0 next to a i32 tile"),
    (lambda x, k, b: et.sort(b), "sort of a bool tile"), (lambda x, k, b: ~x, "not of a f32 tile"),
])
def test_other_dtypes_are_refused_with_the_cast_that_helps(
    make: Callable[..., object], says: str
):
    def f(x, y, k, b, out):
        out[:] = make(x, k, b)

    with pytest.raises(BadDType, match=says) as caught:
        trace(f)
    assert ".cast(et." in caught.value.hint


def test_sorts_give_elements_or_their_indices():
    def f(x, y, k, b, out):
        out[:] = et.sort(x, axis=0) + et.argsort(x).cast(et.f32) + x.cumprod(axis=1)

    found = ops(trace(f))
    assert found[0] == "%1 = sort(%0, axis=0) : f32[8, 4]"
    assert found[1] == "%2 = argsort(%0, axis=1) : i32[8, 4]"
    assert "%5 = cumprod(%0, axis=1) : f32[8, 4]" in found
