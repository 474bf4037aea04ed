"""Every tile op in C++ gives the interpreter's bits (exp, log and tanh: a few ulp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.interp.reference import run_reference
from eventtensor.ir.expr import Const
from eventtensor.ir.plan import CallPlan, Plan, Policy, Schedule, ScheduleKind
from eventtensor.ir.program import Program
from eventtensor.runtime.cpu_kernel import CpuKernel

M, K = 20, 37
KINDS = {
    "f": et.f32, "i": et.i32, "l": et.i64, "b": et.bool_, "h": et.bf16, "s": et.f16, "u": et.u8,
}


def loop_sum(x):
    acc = et.zeros((x.shape[0],))
    for t in et.range(5):
        acc[:] = acc + x[:, t]
    return acc


def loop_swap(x):
    a, b = x[0, :] * 1.0, x[1, :] * 1.0
    for _ in et.range(3):
        old = a * 1.0
        a[:] = b
        b[:] = old + b
    return a - b


def loop_update(x):
    out = et.zeros((5, K))
    for t in et.range(5):
        out[t, :] = x[t, :] + out[t, :]
    return out


def loop_shift(x):
    row = x[0, :] * 1.0
    for _ in et.range(4):
        row[1:] = row[: K - 1]
    return row


def masked(x):
    y = x * 1.0
    y[2:5, 3:9] = et.full((3, 6), -7.0)
    y[0, 0] = 1.5
    return y


# name: (body of f, y, i, l, b, h, s, u), output dtype, output shape, exact
OPS = {
    "add": (lambda a: a.f + a.y, "f", (M, K)),
    "sub": (lambda a: a.f - a.y, "f", (M, K)),
    "mul": (lambda a: a.f * a.y, "f", (M, K)),
    "div": (lambda a: a.f / a.y, "f", (M, K)),
    "fma_is_not_contracted": (lambda a: a.f * a.y + a.f, "f", (M, K)),
    "floordiv_f": (lambda a: a.f // a.y, "f", (M, K)),
    "mod_f": (lambda a: a.f % a.y, "f", (M, K)),
    "floordiv_i": (lambda a: a.i // (a.i % 7 - 3), "i", (M, K)),
    "mod_i": (lambda a: a.i % (a.i % 7 - 3), "i", (M, K)),
    "wrap_i": (lambda a: a.i * a.i * 77777, "i", (M, K)),
    "mul_l": (lambda a: a.l * a.l - a.l, "l", (M, K)),
    "neg_abs": (lambda a: et.abs(-a.f), "f", (M, K)),
    "abs_i": (lambda a: et.abs(a.i), "i", (M, K)),
    "min": (lambda a: et.minimum(a.f, a.y), "f", (M, K)),
    "max": (lambda a: et.maximum(a.f, a.y), "f", (M, K)),
    "sqrt": (lambda a: et.sqrt(et.abs(a.f)), "f", (M, K)),
    "rsqrt": (lambda a: et.rsqrt(et.abs(a.f)), "f", (M, K)),
    "exp": (lambda a: et.exp(a.f), "f", (M, K)),
    "log": (lambda a: et.log(et.abs(a.f)), "f", (M, K)),
    "tanh": (lambda a: et.tanh(a.f), "f", (M, K)),
    "sigmoid": (lambda a: et.sigmoid(a.f), "f", (M, K)),
    "compare": (lambda a: (a.f < a.y) & (a.f >= -a.y) | (a.f == a.y), "b", (M, K)),
    "not": (lambda a: ~a.b, "b", (M, K)),
    "where": (lambda a: et.where(a.f <= a.y, a.f, a.y * 2.0), "f", (M, K)),
    "cast_fi": (lambda a: (a.f * 3.0e9).cast(et.i32), "i", (M, K)),
    "cast_fl": (lambda a: (a.f * 9.0).cast(et.i64), "l", (M, K)),
    "cast_fu": (lambda a: (a.f * 300.0).cast(et.u8), "i", (M, K)),
    "cast_bf16": (lambda a: a.f.cast(et.bf16), "f", (M, K)),
    "cast_f16": (lambda a: (a.f * 30000.0).cast(et.f16), "f", (M, K)),
    "cast_f16_small": (lambda a: (a.f * 1.0e-6).cast(et.f16), "f", (M, K)),
    "cast_bool": (lambda a: a.i.cast(et.bool_), "b", (M, K)),
    "cast_li": (lambda a: (a.l * 5000000000).cast(et.i32), "i", (M, K)),
    "cast_bf": (lambda a: a.b.cast(et.f32), "f", (M, K)),
    "store_bf16": (lambda a: a.f * 1.7, "h", (M, K)),
    "store_f16": (lambda a: a.f * 1.7, "s", (M, K)),
    "store_u8": (lambda a: a.i, "u", (M, K)),
    "load_bf16": (lambda a: a.h + a.f, "f", (M, K)),
    "load_f16": (lambda a: a.s + a.f, "f", (M, K)),
    "load_u8": (lambda a: a.u + a.i, "i", (M, K)),
    "sum0": (lambda a: a.f.sum(axis=0), "f", (K,)),
    "sum1": (lambda a: a.f.sum(axis=1), "f", (M,)),
    "sum_all": (lambda a: (a.f * a.y).sum(axis=1).sum(axis=0) + et.zeros((1,)), "f", (1,)),
    "sum_i": (lambda a: a.i.sum(axis=1), "i", (M,)),
    "max1": (lambda a: a.f.max(axis=1), "f", (M,)),
    "min0": (lambda a: a.f.min(axis=0), "f", (K,)),
    "max_i": (lambda a: a.i.max(axis=0), "i", (K,)),
    "softmax_like": (
        lambda a: (a.y - a.y.max(axis=1, keepdims=True)) / a.y.sum(axis=1, keepdims=True),
        "f", (M, K),
    ),
    "matmul": (lambda a: a.f @ a.y.T, "f", (M, M)),
    "matmul_lazy": (lambda a: (a.f + 1.0) @ (a.y * 2.0).T, "f", (M, M)),
    "matmul_bf16": (lambda a: a.h @ a.s.T, "f", (M, M)),
    "matmul_rows": (lambda a: a.f.T @ a.y, "f", (K, K)),
    "transpose": (lambda a: (a.f + a.y).T, "f", (K, M)),
    "reshape": (lambda a: (a.f + a.y).reshape(K, M), "f", (K, M)),
    "reshape_view": (lambda a: a.f.reshape(M * K), "f", (M * K,)),
    "broadcast": (lambda a: a.f + a.y[0, :] - a.y[:, 1:2], "f", (M, K)),
    "concat": (lambda a: et.concat([a.f, a.y * 2.0, a.f[2:4, :]], axis=0), "f", (2 * M + 2, K)),
    "concat1": (lambda a: et.concat([a.f[:, 0:3], a.y], axis=1), "f", (M, K + 3)),
    "iota": (lambda a: et.iota(K) + a.i, "i", (M, K)),
    "full": (lambda a: et.full((3, 4), 2.5), "f", (3, 4)),
    "slice": (lambda a: a.f[3:11, 5] * a.y[1, 2:10], "f", (8,)),
    "slice_lazy": (lambda a: (a.f * a.y)[3:11, 5], "f", (8,)),
    "update": (lambda a: masked(a.f), "f", (M, K)),
    "histogram": (
        lambda a: et.histogram(a.i.reshape(M * K) % 9 - 2, [1, a.i.reshape(M * K) * 77777], 6),
        "i", (2, 6),
    ),
    "histogram_l": (lambda a: et.histogram(a.l[0] % 5, [a.i[1], a.i[2], 3], 4), "i", (3, 4)),
    "histogram_far": (lambda a: et.histogram(a.l[1] * 2**33, [1], 3), "i", (1, 3)),
    "gather_lazy": (
        lambda a: et.gather(a.f[0], (et.iota(M)[:, None] + et.iota(5)[None, :]) % K).sum(axis=1),
        "f", (M,),
    ),
    "iota_columns": (lambda a: et.iota(M)[:, None] - et.iota(K)[None, :] + a.i, "i", (M, K)),
    "cumsum0": (lambda a: a.f.cumsum(axis=0), "f", (M, K)),
    "cumsum1": (lambda a: a.i.cumsum(axis=1), "i", (M, K)),
    "gather0": (lambda a: et.gather(a.f * a.y, a.i[0:5, 0] % M, axis=0), "f", (5, K)),
    "gather1": (lambda a: et.gather(a.f, a.i[0:2, 0:3] % K, axis=1), "f", (M, 2, 3)),
    "argmax": (lambda a: et.argmax(a.f), "i", (M,)),
    "argmax_ties": (lambda a: et.argmax(a.i % 3), "i", (M,)),
    "topk_values": (lambda a: et.topk(a.f, 4)[0], "f", (M, 4)),
    "topk_indices": (lambda a: et.topk(a.f, 4)[1], "i", (M, 4)),
    "topk_ties": (lambda a: et.topk(a.i % 3, 9)[1], "i", (M, 9)),
    "exp2": (lambda a: et.exp2(a.f), "f", (M, K)),
    "log2": (lambda a: et.log2(et.abs(a.f)), "f", (M, K)),
    "sin": (lambda a: et.sin(a.f), "f", (M, K)),
    "cos": (lambda a: et.cos(a.f), "f", (M, K)),
    "erf": (lambda a: et.erf(a.f), "f", (M, K)),
    "pow": (lambda a: et.abs(a.f) ** a.y, "f", (M, K)),
    "pow_of_negative": (lambda a: a.f ** (a.i % 4 - 1).cast(et.f32), "f", (M, K)),
    "pow_of_two": (lambda a: 2.0**a.f, "f", (M, K)),
    "pow_number": (lambda a: et.abs(a.f) ** 1.5 + et.pow(3.0, a.y), "f", (M, K)),
    "pow_i": (lambda a: a.i**3 - a.i**0, "i", (M, K)),
    "floor": (lambda a: et.floor(a.f), "f", (M, K)),
    "ceil": (lambda a: et.ceil(a.f), "f", (M, K)),
    "round": (lambda a: et.round(a.f), "f", (M, K)),
    "round_halves": (lambda a: et.round(a.i.cast(et.f32) * 0.5), "f", (M, K)),
    "sign": (lambda a: et.sign(a.f), "f", (M, K)),
    "sign_i": (lambda a: et.sign(a.i), "i", (M, K)),
    "reciprocal": (lambda a: et.reciprocal(a.f), "f", (M, K)),
    "and_i": (lambda a: a.i & (a.i * 3 + 1), "i", (M, K)),
    "or_l": (lambda a: a.l | 4096, "l", (M, K)),
    "xor_i": (lambda a: 77 ^ a.i, "i", (M, K)),
    "xor_b": (lambda a: a.b ^ (a.f < a.y), "b", (M, K)),
    "not_i": (lambda a: ~a.i, "i", (M, K)),
    "not_l": (lambda a: ~a.l, "l", (M, K)),
    "shl_i": (lambda a: a.i << (a.i % 70 - 20), "i", (M, K)),
    "shr_i": (lambda a: a.i >> (a.i % 70 - 20), "i", (M, K)),
    "shl_l": (lambda a: a.l << (a.l % 100 - 20), "l", (M, K)),
    "shr_l": (lambda a: (a.l * 2**40) >> (a.l % 100 - 20), "l", (M, K)),
    "cumprod0": (lambda a: (a.y * 1.5).cumprod(axis=0), "f", (M, K)),
    "cumprod_i": (lambda a: et.cumprod(a.i, axis=1), "i", (M, K)),
    "sort1": (lambda a: et.sort(a.f), "f", (M, K)),
    "sort0": (lambda a: et.sort(a.f * a.y, axis=0), "f", (M, K)),
    "sort_i": (lambda a: et.sort(a.i % 9), "i", (M, K)),
    "argsort1": (lambda a: et.argsort(a.f), "i", (M, K)),
    "argsort0_ties": (lambda a: et.argsort(a.l % 3, axis=0), "i", (M, K)),
    "argsort_line": (lambda a: et.argsort(a.y[2, :]), "i", (K,)),
    "argmin": (lambda a: et.argmin(a.f), "i", (M,)),
    "argmin_i": (lambda a: et.argmin(a.i % 3 + (-(2**31))), "i", (M,)),
    "loop_sum": (lambda a: loop_sum(a.f), "f", (M,)),
    "loop_swap": (lambda a: loop_swap(a.f), "f", (K,)),
    "loop_update": (lambda a: loop_update(a.f), "f", (5, K)),
    "loop_shift": (lambda a: loop_shift(a.f), "f", (K,)),
}
INEXACT = {
    "exp", "log", "tanh", "sigmoid", "exp2", "log2", "sin", "cos", "erf", "pow", "pow_of_negative",
    "pow_of_two", "pow_number",
}
Results = dict[str, tuple[np.ndarray, np.ndarray]]
NAMES = ("f", "y", "i", "l", "b", "h", "s", "u")


class Tiles:
    def __init__(self, tiles: tuple[object, ...]) -> None:
        self.__dict__.update(zip(NAMES, tiles, strict=True))


def body_of(name: str):
    make = OPS[name][0]

    def body(f, y, i, l, b, h, s, u, out):  # noqa: E741
        out[...] = make(Tiles((f, y, i, l, b, h, s, u)))

    return et.task(name=f"kind_{name}")(body)


def whole(t, shape):
    return lambda: t[tuple(slice(0, s) for s in shape)]


def all_ops() -> Program:
    p = et.Program("ops")
    tensors = [p.input(n, (M, K), KINDS.get(n, et.f32)) for n in NAMES]
    reads = lambda: tuple(t[0:M, 0:K] for t in tensors)
    for name, (_, kind, shape) in OPS.items():
        out = p.output(f"out_{name}", shape, KINDS[kind])
        p.call(body_of(name), grid=(), reads=reads, writes=whole(out, shape), name=f"do_{name}")
    return p.build()


def unordered_plan(program: Program) -> Plan:
    """No events: the calls do not depend on each other."""
    how = Schedule(ScheduleKind.static, Policy.round_robin, "test", Const(0))
    calls = tuple(CallPlan(p.call.name, (), (), (), how) for p in program.calls)
    return Plan(program, (), calls, (), (), Const(0))


def inputs() -> dict[str, np.ndarray]:
    r = np.random.default_rng(0)
    f = (r.standard_normal((M, K)) * np.exp(r.standard_normal((M, K)) * 3)).astype(np.float32)
    f[3, 4], f[5, 0], f[6, 6], f[7, 7], f[8, 8] = np.nan, np.inf, -np.inf, -0.0, 0.0
    return {
        "f": f,
        "y": r.standard_normal((M, K)).astype(np.float32),
        "i": r.integers(-1000, 1000, (M, K)).astype(np.int32),
        "l": r.integers(-1000, 1000, (M, K)),
        "b": r.integers(0, 2, (M, K)).astype(bool),
        "h": r.standard_normal((M, K)).astype(et.bf16.numpy),
        "s": r.standard_normal((M, K)).astype(np.float16),
        "u": r.integers(0, 256, (M, K)).astype(np.uint8),
    }


def both_ways(kernel_of: Callable[[Plan, Options], Any]) -> Results:
    """What a back end and plain evaluation give for every op."""
    program, given = all_ops(), inputs()
    blank = {f"out_{n}": np.zeros(s, KINDS[k].numpy) for n, (_, k, s) in OPS.items()}
    mine = {**given, **{n: x.copy() for n, x in blank.items()}}
    kernel = kernel_of(unordered_plan(program), Options(workers=2))
    kernel.launch({}, mine)
    kernel.close()
    theirs = {**given, **{n: x.copy() for n, x in blank.items()}}
    run_reference(program, {}, theirs)
    return {n: (mine[f"out_{n}"], theirs[f"out_{n}"]) for n in OPS}


def assert_agrees(name: str, mine: np.ndarray, theirs: np.ndarray, rtol: float) -> None:
    if name in INEXACT:
        np.testing.assert_allclose(mine, theirs, rtol=rtol)
    else:
        if mine.dtype.itemsize == 2:
            mine, theirs = mine.astype(np.float32), theirs.astype(np.float32)
        np.testing.assert_array_equal(mine, theirs)
        if mine.dtype.kind == "f":
            zero = (mine == 0) & (theirs == 0)
            np.testing.assert_array_equal(np.signbit(mine[zero]), np.signbit(theirs[zero]))


@pytest.fixture(scope="module")
def results() -> Results:
    return both_ways(CpuKernel)


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, results: Results) -> None:
    assert_agrees(name, *results[name], rtol=1e-6)
