"""Padding per axis: an axis without it is clipped as in other regions, whatever the others have.
Against NumPy on the interpreter, on threads and in CUDA on the emulator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.interp import run
from eventtensor.ir.plan import Plan
from eventtensor.runtime.cpu_kernel import CpuKernel
from tests.support.backends import passes
from tests.support.emulated import emulated_kernel

Arrays = dict[str, np.ndarray]
Launch = Callable[[Plan, dict[str, int], Arrays], None]
VALUE = -3.5


@et.task
def convolve(x, k, out):
    """Three rows by two columns: rows reach outside, columns do not."""
    rows, columns = out.shape[0], x.shape[1] - 1
    total = et.zeros((rows, columns))
    for dy in range(3):
        for dx in range(2):
            total = total + x[dy : dy + rows, dx : dx + columns] * k[dy, dx]
    out[:] = total


def rows_padded() -> et.Program:
    n, m = et.dim("n", max=100), et.dim("m", min=2, max=100)
    p = et.Program("rows_padded")
    x, k = p.input("x", (n, m), et.f32), p.weight("k", (3, 2), et.f32)
    out = p.output("out", (n, m - 1), et.f32)
    p.call(convolve, grid=(n.tiles(4), (m - 1).tiles(5)),
           reads=lambda i, j: (
               x.padded((1, 0), (1, 0), VALUE)[i * 4 - 1 : i * 4 + 5, j * 5 : j * 5 + 6], k),
           writes=lambda i, j: out[i * 4 : i * 4 + 4, j * 5 : j * 5 + 5])
    return p


@et.task
def widen(x, out):
    """Columns reach outside; a tile has as many rows as there are."""
    columns = out.shape[1]
    out[:] = x[:, 0:columns] + x[:, 1 : columns + 1] * 2.0 + x.sum(axis=0)[0:columns]


def columns_padded() -> et.Program:
    n, m = et.dim("n", max=100), et.dim("m", min=2, max=100)
    p = et.Program("columns_padded")
    x, out = p.input("x", (n, m), et.f32), p.output("out", (n, m), et.f32)
    p.call(widen, grid=(n.tiles(4), m.tiles(5)),
           reads=lambda i, j: x.padded(0, (0, 1), VALUE)[i * 4 : i * 4 + 4, j * 5 : j * 5 + 6],
           writes=lambda i, j: out[i * 4 : i * 4 + 4, j * 5 : j * 5 + 5])
    return p


def on_interpreter(plan: Plan, dims: dict[str, int], arrays: Arrays) -> None:
    run(plan, dims, arrays, debug=True).raise_if_bad()


def on_threads(plan: Plan, dims: dict[str, int], arrays: Arrays) -> None:
    kernel = CpuKernel(plan, Options(workers=2, debug=True))
    kernel.launch(dims, arrays)
    kernel.close()


def on_emulator(plan: Plan, dims: dict[str, int], arrays: Arrays) -> None:
    with emulated_kernel(plan, workers=2) as kernel:
        kernel.launch(dims, arrays)


@pytest.mark.parametrize("program", (rows_padded, columns_padded))
def test_tiles_fit_for_all_sizes(program: Callable[[], et.Program]) -> None:
    assert str(et.check(program()).status) == "proved"


TARGETS = pytest.mark.parametrize("launch", (on_interpreter, on_threads, on_emulator))
SIZES = pytest.mark.parametrize("n, m", ((9, 13), (4, 6), (1, 2)))


def floats(*shape: int) -> np.ndarray:
    """Small integers, whose sums have one value whatever their order."""
    return np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)


@TARGETS
@SIZES
def test_a_convolution_padded_in_one_axis(launch: Launch, n: int, m: int) -> None:
    x, k, out = floats(n, m), floats(3, 2), np.zeros((n, m - 1), np.float32)
    launch(plan_of(rows_padded()), {"n": n, "m": m}, {"x": x, "k": k, "out": out})
    wide = np.pad(x, ((1, 1), (0, 0)), constant_values=VALUE)
    want = sum(wide[dy : dy + n, dx : dx + m - 1] * k[dy, dx]
               for dy in range(3) for dx in range(2))
    np.testing.assert_array_equal(out, want)


@TARGETS
@SIZES
def test_an_axis_without_padding_has_no_padding_in_sums(launch: Launch, n: int, m: int) -> None:
    x, out = floats(n, m), np.zeros((n, m), np.float32)
    launch(plan_of(columns_padded()), {"n": n, "m": m}, {"x": x, "out": out})
    wide = np.pad(x, ((0, 0), (0, 1)), constant_values=VALUE)
    tiles = [x[i : i + 4].sum(axis=0) for i in range(0, n, 4)]
    want = x + wide[:, 1:] * 2 + np.repeat(tiles, 4, axis=0)[:n]
    np.testing.assert_array_equal(out, want)


def plan_of(program: et.Program) -> Plan:
    plan = passes(program).plan
    assert plan is not None
    return plan
