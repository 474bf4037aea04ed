"""What a run of the interpreter costs grows with tasks and their edges, not with pairs of tasks."""

from __future__ import annotations

import sys
from types import FrameType

import numpy as np
import pytest

import eventtensor as et
from eventtensor.interp import run
from eventtensor.ir.plan import Plan
from tests.support.backends import passes

LEVELS = 4


@et.task
def begin(source, dist, *, v):
    dist[:] = et.where(source == v, 0, 1 << 20)


@et.task
def relax(mine, near, out):
    out[:] = et.minimum(mine, near.min(axis=0) + 1)


def search() -> Plan:
    """Breadth first: a task for each vertex and level reads neighbours through run-time indices."""
    V, L = et.dim("V", max=4096), et.dim("L", max=64)
    p = et.Program("search")
    near, source = p.input("near", (V, 4), et.i32, bound=V - 1), p.input("source", (), et.i32)
    dist = p.output("dist", (L + 1, V), et.i32)
    p.call(begin, grid=(V,), reads=lambda v: source[()], writes=lambda v: dist[0, v])
    with p.loop("k", L) as k:
        p.call(relax, grid=(V,), reads=lambda v: (dist[k, v], dist[k, near[v, 0:4]]),
               writes=lambda v: dist[k + 1, v])
    plan = passes(p).plan
    assert plan is not None
    return plan


def calls_of(plan: Plan, vertices: int) -> int:
    """How many functions a run calls."""
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    rng = np.random.default_rng(0)
    arrays = {"near": rng.integers(0, vertices, (vertices, 4)).astype(np.int32),
              "source": np.zeros((), np.int32),
              "dist": np.zeros((LEVELS + 1, vertices), np.int32)}
    sys.setprofile(counted)
    try:
        report = run(plan, {"V": vertices, "L": LEVELS}, arrays)
    finally:
        sys.setprofile(None)
    assert report.ok and (arrays["dist"][:, 0] == 0).all()
    return count


@pytest.mark.parametrize("few", [50, 100])
def test_a_search_costs_each_task_the_same_whatever_their_number(few: int) -> None:
    plan = search()
    assert calls_of(plan, 4 * few) < 1.2 * 4 * calls_of(plan, few)


def test_a_small_task_costs_few_calls() -> None:
    assert calls_of(search(), 100) < 600 * 100 * (LEVELS + 1)
