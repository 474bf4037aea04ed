"""NumPy's vocabulary that other ops make up: as NumPy has it, on the interpreter, on threads and in
CUDA on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
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
from tests.support.emulated import emulated_kernel

M, K = 6, 10
KINDS = {"float32": et.f32, "int32": et.i32, "int64": et.i64, "bool": et.bool_}
Body = Callable[[Any], Any]


def inputs() -> dict[str, np.ndarray]:
    """Small integers as floats, so that sums have one value whatever their order."""
    r = np.random.default_rng(0)
    return {
        "f": r.integers(-9, 10, (M, K)).astype(np.float32),
        "y": r.integers(-9, 10, (M, K)).astype(np.float32),
        "g": r.integers(-4, 5, (3, M, K)).astype(np.float32),
        "v": r.integers(-9, 10, K).astype(np.float32),
        "i": r.integers(-5, 6, (M, K)).astype(np.int32),
        "b": r.integers(0, 2, (M, K)).astype(bool),
        "e": np.zeros((M, K), bool),
    }


# name: what a body does, and what NumPy does
OPS: dict[str, tuple[Body, Body]] = {
    "mean0": (lambda a: a.f.mean(axis=0), lambda a: a.f.mean(axis=0)),
    "mean_all": (lambda a: et.mean(a.f), lambda a: a.f.mean()),
    "mean_keepdims": (lambda a: a.f - a.f.mean(1, keepdims=True),
                      lambda a: a.f - a.f.mean(1, keepdims=True)),
    "var": (lambda a: a.f.var(axis=1), lambda a: a.f.var(axis=1)),
    "var_ddof": (lambda a: et.var(a.f, axis=-1, ddof=1), lambda a: a.f.var(axis=-1, ddof=1)),
    "sum_function": (lambda a: et.sum(a.f, axis=-2), lambda a: a.f.sum(axis=-2)),
    "sum_axes": (lambda a: a.g.sum(axis=(0, -1)), lambda a: a.g.sum(axis=(0, -1))),
    "sum_bool": (lambda a: a.b.sum(axis=1), lambda a: a.b.sum(axis=1).astype(np.int32)),
    "max_bool": (lambda a: a.b.max(axis=0), lambda a: a.b.max(axis=0)),
    "min_bool": (lambda a: a.b.min(axis=0), lambda a: a.b.min(axis=0)),
    "cumsum_bool": (lambda a: a.b.cumsum(1), lambda a: a.b.cumsum(1).astype(np.int32)),
    "any_bool": (lambda a: a.b.any(axis=0), lambda a: a.b.any(axis=0)),
    "any_none": (lambda a: a.e.any(axis=1), lambda a: a.e.any(axis=1)),
    "all_float": (lambda a: et.all(a.f, axis=1), lambda a: a.f.all(axis=1)),
    "any_int": (lambda a: et.any(a.i == 5, axis=1, keepdims=True),
                lambda a: (a.i == 5).any(axis=1, keepdims=True)),
    "max_function": (lambda a: et.max(a.f, axis=1), lambda a: a.f.max(axis=1)),
    "min_function": (lambda a: et.min(a.i), lambda a: a.i.min()),
    "argmax_axis": (lambda a: et.argmax(a.i, axis=0),
                    lambda a: a.i.argmax(axis=0).astype(np.int32)),
    "argmax_method": (lambda a: a.v.argmax(), lambda a: a.v.argmax().astype(np.int32)),
    "argmin_method": (lambda a: a.f.argmin(axis=0), lambda a: a.f.argmin(axis=0).astype(np.int32)),
    "argsort_method": (lambda a: a.i.argsort(axis=0),
                       lambda a: a.i.argsort(axis=0, kind="stable").astype(np.int32)),
    "clip": (lambda a: et.clip(a.f, -2.0, 3.0), lambda a: np.clip(a.f, -2.0, 3.0)),
    "clip_low": (lambda a: a.i.clip(0), lambda a: a.i.clip(0)),
    "clip_tile": (lambda a: a.f.clip(None, a.v), lambda a: a.f.clip(None, a.v)),
    "square": (lambda a: et.square(a.f), lambda a: np.square(a.f)),
    "matrix_vector": (lambda a: a.f @ a.v, lambda a: a.f @ a.v),
    "vector_matrix": (lambda a: a.v @ a.f.T, lambda a: a.v @ a.f.T),
    "vector_vector": (lambda a: a.v @ a.v, lambda a: a.v @ a.v),
    "dot": (lambda a: et.dot(a.f[0], a.v), lambda a: np.dot(a.f[0], a.v)),
    "dot_int": (lambda a: a.i[0].dot(a.i[1]), lambda a: a.i[0].dot(a.i[1])),
    "leading": (lambda a: a.g @ a.y.T, lambda a: a.g @ a.y.T),
    "leading_both": (lambda a: a.g @ a.g.transpose(0, 2, 1),
                     lambda a: a.g @ a.g.transpose(0, 2, 1)),
    "leading_right": (lambda a: a.f @ a.g.swapaxes(1, 2), lambda a: a.f @ a.g.swapaxes(1, 2)),
    "leading_one": (lambda a: a.f[None] @ a.g.swapaxes(1, 2),
                    lambda a: a.f[None] @ a.g.swapaxes(1, 2)),
    "leading_vector": (lambda a: a.g @ a.v, lambda a: a.g @ a.v),
    "outer": (lambda a: et.outer(a.v, a.f[0]), lambda a: np.outer(a.v, a.f[0])),
    "stack0": (lambda a: et.stack([a.f, a.y]), lambda a: np.stack([a.f, a.y])),
    "stack_last": (lambda a: et.stack([a.f, a.y, a.f * a.y], axis=-1),
                   lambda a: np.stack([a.f, a.y, a.f * a.y], axis=-1)),
    "split": (lambda a: et.split(a.f, 3)[1] * 2.0, lambda a: np.split(a.f, 3)[1] * 2),
    "split_last": (lambda a: et.split(a.f, 2, axis=-1)[1] + 0.0,
                   lambda a: np.split(a.f, 2, axis=-1)[1]),
    "split_at": (lambda a: et.split(a.f, [2, 5], axis=1)[2] + 0.0,
                 lambda a: np.split(a.f, [2, 5], axis=1)[2]),
    "repeat": (lambda a: et.repeat(a.f, 3, axis=1), lambda a: np.repeat(a.f, 3, axis=1)),
    "repeat_first": (lambda a: a.i.repeat(2, axis=0), lambda a: a.i.repeat(2, axis=0)),
    "repeat_flat": (lambda a: a.v.repeat(2), lambda a: a.v.repeat(2)),
    "flip": (lambda a: et.flip(a.f), lambda a: np.flip(a.f)),
    "flip_axis": (lambda a: et.flip(a.f, axis=-1), lambda a: np.flip(a.f, axis=-1)),
    "step": (lambda a: a.f[::2], lambda a: a.f[::2]),
    "step_odd": (lambda a: a.f[:, 1::3] * 2.0, lambda a: a.f[:, 1::3] * 2),
    "step_back": (lambda a: a.f[::-1, 8:1:-3], lambda a: a.f[::-1, 8:1:-3]),
    "step_point": (lambda a: a.f[2, ::-1], lambda a: a.f[2, ::-1]),
    "step_new": (lambda a: a.g[1, None, ..., ::5], lambda a: a.g[1, None, ..., ::5]),
    "step_computed": (lambda a: (a.f * a.y)[::2, ::2], lambda a: (a.f * a.y)[::2, ::2]),
    "astype": (lambda a: a.i.astype(et.f32), lambda a: a.i.astype(np.float32)),
    "astype_numpy": (lambda a: a.f.astype(np.int32), lambda a: a.f.astype(np.int32)),
    "astype_bool": (lambda a: a.i.astype(bool), lambda a: a.i.astype(bool)),
    "fractions": (lambda a: a.i.astype(et.f32) / a.i.clip(1).cast(et.f32),
                  lambda a: a.i.astype(np.float32) / a.i.clip(1).astype(np.float32)),
    "copy": (lambda a: changed(a.f), lambda a: changed(a.f)),
    "ones": (lambda a: et.ones((2, 3)), lambda a: np.ones((2, 3), np.float32)),
    "zeros_like": (lambda a: et.zeros_like(a.i), lambda a: np.zeros_like(a.i)),
    "ones_like": (lambda a: et.ones_like(a.b), lambda a: np.ones_like(a.b)),
    "full_like": (lambda a: et.full_like(a.f, 2.5), lambda a: np.full_like(a.f, 2.5)),
    "flatten": (lambda a: a.f.flatten(), lambda a: a.f.flatten()),
    "squeeze": (lambda a: a.f[:, None].squeeze(), lambda a: a.f[:, None].squeeze()),
    "squeeze_axis": (lambda a: a.f[None, :, None].squeeze(axis=0), lambda a: a.f[:, None]),
    "expand_dims": (lambda a: et.expand_dims(a.f, -2), lambda a: np.expand_dims(a.f, -2)),
    "swapaxes": (lambda a: a.g.swapaxes(0, -1), lambda a: a.g.swapaxes(0, -1)),
    "std": (lambda a: a.f.std(axis=1), lambda a: a.f.std(axis=1)),
    "std_ddof": (lambda a: et.std(a.f, 0, ddof=1, keepdims=True),
                 lambda a: a.f.std(0, ddof=1, keepdims=True)),
    "concatenate": (lambda a: et.concatenate([a.f, a.y], axis=1),
                    lambda a: np.concatenate([a.f, a.y], axis=1)),
    "arange": (lambda a: et.arange(K) * 3, lambda a: np.arange(K, dtype=np.int32) * 3),
    "arange_start": (lambda a: et.arange(-2, K), lambda a: np.arange(-2, K, dtype=np.int32)),
    "arange_step": (lambda a: et.arange(1, K, 4), lambda a: np.arange(1, K, 4, dtype=np.int32)),
    "arange_down": (lambda a: et.arange(K, -2, -5), lambda a: np.arange(K, -2, -5, dtype=np.int32)),
    "arange_exact": (lambda a: et.arange(0, K, 5), lambda a: np.arange(0, K, 5, dtype=np.int32)),
    "arange_f32": (lambda a: et.arange(K, dtype=et.f32) / 2.0,
                   lambda a: np.arange(K, dtype=np.float32) / 2),
    "numpy_scalar": (lambda a: np.float32(3) * a.f - np.float32(2), lambda a: 3 * a.f - 2),
}  # fmt: skip
# A division may be a product with the reciprocal's last bit off in NumPy's pairwise means.
CLOSE = {"var", "var_ddof", "std", "std_ddof", "mean_all"}


def changed(x: Any) -> Any:
    """Parts of a copy are assigned; the tile it was made of stays."""
    y = x.copy()
    y[1:3, 2] = 7.0
    return y * x


def wanted(name: str) -> np.ndarray:
    return np.asarray(OPS[name][1](SimpleNamespace(**inputs())))


def all_ops(names: list[str]) -> Program:
    p = et.Program("composed")
    given = inputs()
    tensors = [p.input(n, x.shape, KINDS[x.dtype.name]) for n, x in given.items()]
    for name in names:
        want = wanted(name)
        out = p.output(f"out_{name}", want.shape, KINDS[want.dtype.name])
        p.call(task_of(name, list(given)), grid=(), reads=lambda: tuple(t.whole() for t in tensors),
               writes=out, name=f"do_{name}")
    return p.build()


def task_of(name: str, names: list[str]) -> Any:
    def body(f, y, g, v, i, b, e, out):
        tiles = dict(zip(names, (f, y, g, v, i, b, e), strict=True))
        out[...] = OPS[name][0](SimpleNamespace(**tiles))

    return et.task(name=f"kind_{name}")(body)


def plan_of(program: Program) -> Plan:
    """No events: the calls do not depend on each other."""
    how = Schedule(ScheduleKind.static, Policy.round_robin, "test", Const(0))
    calls = tuple(CallPlan(p.call.name, (), (), (), how) for p in program.calls)
    return Plan(program, (), calls, (), (), Const(0))


def arrays_of(names: list[str]) -> dict[str, np.ndarray]:
    wants = {f"out_{n}": wanted(n) for n in names}
    return {**inputs(), **{n: np.zeros(w.shape, w.dtype) for n, w in wants.items()}}


def launched(target: str, names: list[str]) -> dict[str, np.ndarray]:
    program, arrays = all_ops(names), arrays_of(names)
    if target == "interp":
        run_reference(program, {}, arrays)
    elif target == "cpu":
        kernel = CpuKernel(plan_of(program), Options(workers=2))
        kernel.launch({}, arrays)
        kernel.close()
    else:
        with emulated_kernel(plan_of(program)) as kernel:
            kernel.launch({}, arrays)
    return arrays


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, np.ndarray]]:
    return {target: launched(target, list(OPS)) for target in ("interp", "cpu", "cuda")}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("target", ["interp", "cpu", "cuda"])
def test_a_body_has_what_numpy_has(
    target: str, name: str, results: dict[str, dict[str, np.ndarray]]
) -> None:
    got, want = results[target][f"out_{name}"], wanted(name)
    if name in CLOSE:
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


def test_the_proof_knows_that_slices_with_steps_lie_in_their_tile() -> None:
    p = et.Program("steps")
    x, out = p.input("x", (8, 9), et.f32), p.output("out", (4, 9), et.f32)

    @et.task
    def kind(x, out):
        out[:] = x[::2, ::-1]

    p.call(kind, grid=(), reads=x, writes=out)
    report = et.check(p)
    assert report.ok and not report.obligations
