"""Loops that the C++ back end runs in lanes say what their plain forms say, odd values included."""

from __future__ import annotations

import numpy as np

import eventtensor as et
from eventtensor.config import Options
from eventtensor.runtime.cpu_kernel import CpuKernel


@et.task
def largest(x, i, place, place_i):
    place[:] = et.argmax(x)
    place_i[:] = et.argmax(i)


@et.task
def exponential(x, out):
    out[:] = et.exp(x)


@et.task
def halves(x, out):
    out[:] = x + 0.0


def rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ties, NaN and the lowest value in all places; whole rows of them too."""
    pool = np.array([np.nan, -np.inf, -1.0, 0.0, -0.0, 2.0, np.inf], np.float32)
    drawn = pool[rng.integers(0, rng.integers(1, 8, (60, 1)), (60, n))]
    plain = rng.standard_normal((60, n)).astype(np.float32)
    return np.concatenate([drawn, plain, np.where(rng.random((60, n)) < 0.3, np.nan, plain)])


def test_argmax_takes_the_first_of_ties_and_nan_last(lab) -> None:
    p, n = et.Program("largest"), et.dim("n", max=200)
    x, i = p.input("x", (180, n), et.f32), p.input("i", (180, n), et.i32)
    out, out_i = p.output("out", (180,), et.i32), p.output("out_i", (180,), et.i32)
    p.call(largest, grid=(1,), reads=lambda t: (x[:, :], i[:, :]),
           writes=lambda t: (out[:], out_i[:]))
    plan = lab.plan(p)
    kernel = CpuKernel(plan, Options(workers=1))
    rng = np.random.default_rng(5)
    for size in (1, 2, 15, 16, 17, 31, 32, 33, 100):
        whole = rng.integers(-3, 3, (180, size)).astype(np.int32)
        whole[:20] = np.iinfo(np.int32).min
        arrays = {"x": rows(rng, size).astype(np.float32), "i": whole,
                  "out": np.zeros(180, np.int32), "out_i": np.zeros(180, np.int32)}
        expected = lab.reference(plan, {"n": size}, arrays)
        kernel.launch({"n": size}, arrays)
        lab.assert_same(arrays, expected)
    kernel.close()


def run(kind: et.Task, x: np.ndarray, dtype: et.DType) -> np.ndarray:
    p, n = et.Program("loop"), et.dim("n", max=1 << 30)
    a, out = p.input("a", (n,), dtype), p.output("out", (n,), dtype)
    p.call(kind, grid=(1,), reads=lambda i: a[:], writes=lambda i: out[:])
    kernel, found = et.compile(p, target="cpu", workers=1), np.zeros_like(x)
    kernel(a=x, out=found)
    kernel.close()
    return found


def test_exp_is_within_an_ulp_and_keeps_the_ends() -> None:
    rng = np.random.default_rng(1)
    some = rng.integers(0, 2**32, 200_000, np.uint64).astype(np.uint32).view(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 88.72283, 88.72284, 89.0, 1e30, -1e30,
                     -87.33655, -103.2789, -103.9, -104.0, -150.0], np.float32)
    x = np.concatenate([some, ends, np.linspace(-104, 89, 100_001, dtype=np.float32)])
    found = run(exponential, x, et.f32)
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        ulp = np.maximum(np.spacing(np.minimum(rounded, np.float32(3e38))), np.float32(2.0**-149))
        error = np.abs(found.astype(np.float64) - exact) / ulp
    assert np.array_equal(np.isnan(found), np.isnan(x))
    finite = np.isfinite(rounded)
    assert error[finite].max() <= 1.0
    assert (found[np.isposinf(rounded)] == np.inf).all()
    assert found[x == 0].tolist() == [1.0] * int((x == 0).sum())


def test_halves_go_both_ways_unchanged() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = run(halves, every, et.f16)
    np.testing.assert_array_equal(found, np.where(every == 0, np.float16(0), every))
