"""Small programs that the back end's tests share, and their plain evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.interp.reference import run_reference
from eventtensor.ir.plan import Plan
from eventtensor.ir.tensor import Role
from eventtensor.ir.walk import evaluate

Arrays = dict[str, np.ndarray]


@et.task
def row_sums(x, out):
    out[:] = x.sum(axis=1)


@et.task
def scale_rows(x, out, *, e):
    out[:] = x * 2.0 + e


@et.task
def add_rows(x, out):
    out[:] = x.sum(axis=0)


@et.task
def step(x, w, out):
    out[:] = x + x @ w


def row_sum() -> et.Program:
    n = et.dim("n", max=100000)
    p = et.Program("row_sum")
    a = p.input("a", (n, 128), et.f32)
    b = p.scratch("b", (n, 4), et.f32)
    c = p.output("c", (n,), et.f32)
    p.call(row_sums, name="partial", grid=(n.tiles(32), 4),
           reads=lambda i, j: a[i * 32 : i * 32 + 32, j * 32 : j * 32 + 32],
           writes=lambda i, j: b[i * 32 : i * 32 + 32, j])
    p.call(row_sums, name="final", grid=(n.tiles(32),),
           reads=lambda i: b[i * 32 : i * 32 + 32, :], writes=lambda i: c[i * 32 : i * 32 + 32])
    return p


def ragged() -> et.Program:
    """Expert e has tiles[e] tiles: the grid's size is run-time data."""
    p = et.Program("ragged")
    m = et.dim("m", max=64)
    tiles = p.input("tiles", (5,), et.i32, bound=(0, m))
    x = p.input("x", (5, m * 4, 8), et.f32)
    y = p.scratch("y", (5, m * 4, 8), et.f32)
    z = p.output("z", (5, m, 8), et.f32, partial=True)
    p.call(scale_rows, name="scale", grid=(5, lambda e: tiles[e]),
           reads=lambda e, t: x[e, t * 4 : t * 4 + 4, :],
           writes=lambda e, t: y[e, t * 4 : t * 4 + 4, :])
    p.call(add_rows, name="add", grid=(5, lambda e: tiles[e]),
           reads=lambda e, t: y[e, t * 4 : t * 4 + 4, :], writes=lambda e, t: z[e, t, :])
    return p


def carried() -> et.Program:
    """A loop whose state is carried through a scratch tensor that each layer overwrites."""
    n, layers = et.dim("n", max=1000), et.dim("layers", max=20)
    p = et.Program("carried")
    w = p.weight("w", (layers, 16, 16), et.f32)
    h = p.state("h", (n, 16), et.f32)
    g = p.scratch("g", (n, 16), et.f32)
    with p.loop("l", layers) as l:  # noqa: E741
        p.call(step, name="up", grid=(n.tiles(8),),
               reads=lambda i: (h[i * 8 : i * 8 + 8, :], w[l, :, :]),
               writes=lambda i: g[i * 8 : i * 8 + 8, :])
        p.call(step, name="down", grid=(n.tiles(8),),
               reads=lambda i: (g[i * 8 : i * 8 + 8, :], w[l, :, :]),
               writes=lambda i: h[i * 8 : i * 8 + 8, :])
    return p


def make_plan(program: et.Program, schedule: str = "static") -> Plan:
    state = run_passes(program, Options(schedule=schedule))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def make_arrays(plan: Plan, dims: Mapping[str, int], seed: int = 0) -> Arrays:
    """Ill-conditioned floats, small integers within bounds, cleared outputs."""
    rng = np.random.default_rng(seed)
    out: Arrays = {}
    for t in plan.program.tensors:
        if t.role is Role.scratch:
            continue
        shape = tuple(evaluate(s, dims) for s in t.shape)
        if t.role is Role.output:
            out[t.name] = np.zeros(shape, t.dtype.numpy)
        elif t.dtype.is_float:
            wild = rng.standard_normal(shape) * np.exp(rng.standard_normal(shape) * 2)
            out[t.name] = (wild / 8).astype(t.dtype.numpy)
        else:
            low, high = (evaluate(b, dims) for b in t.bound) if t.bound else (0, 2)
            out[t.name] = rng.integers(low, high + 1, shape).astype(t.dtype.numpy)
    return out


def reference(plan: Plan, dims: Mapping[str, int], arrays: Arrays) -> Arrays:
    copy = {k: v.copy() for k, v in arrays.items()}
    run_reference(plan.program, dims, copy)
    return copy


def assert_same(mine: Arrays, theirs: Arrays) -> None:
    for name, x in theirs.items():
        np.testing.assert_array_equal(mine[name], x, err_msg=name)


@pytest.fixture(scope="session")
def lab() -> Any:
    programs: dict[str, Callable[[], et.Program]] = {
        "row_sum": row_sum, "ragged": ragged, "carried": carried,
    }
    return SimpleNamespace(
        programs=programs, plan=make_plan, arrays=make_arrays, reference=reference,
        assert_same=assert_same, tasks=SimpleNamespace(row_sums=row_sums, add_rows=add_rows),
    )
