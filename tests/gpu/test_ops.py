"""Every tile op in CUDA gives the interpreter's bits (exp, log and tanh: a few ulp), and loops over
elements visit each of them once, whatever the extents."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from tests.backend import conftest as lab
from tests.backend import test_ops as ops

PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_every_op_agrees_with_the_interpreter(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ops of a part are one kernel: a test for each op would compile it again and again."""
    mine = dict(list(ops.OPS.items())[part::PARTS])
    monkeypatch.setattr(ops, "OPS", mine)
    wrong = {}
    for name, pair in ops.both_ways(CudaKernel).items():
        try:
            ops.assert_agrees(name, *pair, rtol=2e-6)
        except AssertionError as error:
            wrong[name] = str(error)
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


@et.task
def add_flat(x, acc):
    acc[:] += x


@et.task
def add_deep(x, acc):
    """Three axes, of which the threads take neighbouring elements across all."""
    acc[:] += x[:, :, None] * et.full((3,), 1.0)


def sums() -> et.Program:
    p = et.Program("sums")
    r, n = et.dim("r", max=1000), et.dim("n", max=1000)
    x = p.input("x", (r, n), et.f32)
    flat, deep = p.output("flat", (r, n), et.f32), p.output("deep", (r, n, 3), et.f32)
    p.call(add_flat, grid=(), reads=lambda: x[:, :], accumulates=lambda: flat[:, :])
    p.call(add_deep, grid=(), reads=lambda: x[:, :], accumulates=lambda: deep[:, :, :])
    return p


def test_an_accumulation_visits_every_element_once() -> None:
    plan = lab.make_plan(sums())
    kernel = CudaKernel(plan, Options(target="cuda"))
    for r, n in ((1, 1), (1, 700), (700, 1), (7, 37), (20, 37), (33, 255), (33, 256), (33, 257)):
        arrays = lab.make_arrays(plan, {"r": r, "n": n})
        kernel.launch({"r": r, "n": n}, arrays)
        np.testing.assert_array_equal(arrays["flat"], arrays["x"])
        np.testing.assert_array_equal(arrays["deep"], np.repeat(arrays["x"][..., None], 3, 2))
    kernel.close()
