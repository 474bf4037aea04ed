"""Inverse maps: over all cells of an event, releases visit exactly the tasks that wait on them."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.expr import Const, Var
from eventtensor.ir.plan import Nest, NestAxis, Plan, visit
from eventtensor.ir.walk import evaluate
from examples.blocks import blocks
from examples.cholesky import cholesky
from examples.row_sum import row_sum


@et.task
def copy(x, o):
    o[:] = x


def shared() -> et.Program:
    """One event, waited on by grids of different sizes and by different cells of it."""
    n = et.dim("n", max=64)
    p = et.Program("shared")
    x, s = p.input("x", (n, 8), et.f32), p.scratch("s", (n, 8), et.f32)
    a, b = p.output("a", (n, 8), et.f32), p.output("b", (8,), et.f32)
    e = p.events("E", (n,), count=1)
    p.call(copy, grid=(n,), reads=lambda i: x[i, :], writes=lambda i: s[i, :],
           notifies=lambda i: e[i])
    p.call(copy, grid=(n - 1,), reads=lambda i: s[i + 1, :], writes=lambda i: a[i, :],
           waits=lambda i: e[i + 1])
    p.call(copy, grid=(1,), reads=lambda i: s[0, :], writes=lambda i: b[:], waits=lambda i: e[0])
    return p


def waiting(plan: Plan, dims: dict[str, int]) -> Counter:
    found: Counter = Counter()
    for c in plan.calls:
        placed = plan.program.placed(c.call)
        axes = tuple(NestAxis(a.var, Const(0), a.extent) for a in placed.axes)
        tasks = Nest(axes, (), tuple(Var(v) for v in placed.vars))
        for coords in visit(tasks, dims):
            env = {**dims, **dict(zip(placed.vars, coords, strict=True))}
            for w in c.waits:
                for nest in w.cells:
                    found.update((w.event, cell, c.call, coords) for cell in visit(nest, env))
    return found


def released(plan: Plan, dims: dict[str, int]) -> Counter:
    found: Counter = Counter()
    for r in plan.releases:
        shape = [evaluate(s, dims) for s in plan.event(r.event).shape]
        for cell in product(*(range(s) for s in shape)):
            env = {**dims, **{f"c{k}": v for k, v in enumerate(cell)}}
            for nest in r.tasks:
                found.update((r.event, cell, r.call, task) for task in visit(nest, env))
    return found


@pytest.mark.parametrize("make, sizes", [
    (shared, [{"n": n} for n in (1, 2, 5)]),
    (row_sum, [{"n": n} for n in (1, 33, 100)]),
    (blocks, [{"n": n, "L": k} for n, k in ((1, 1), (33, 3))]),
    (cholesky, [{"t": t} for t in (1, 2, 5)]),
])
def test_releases_are_the_inverse_of_waits(make, sizes):
    plan = run_passes(make(), Options()).plan
    for dims in sizes:
        assert released(plan, dims) == waiting(plan, dims)
