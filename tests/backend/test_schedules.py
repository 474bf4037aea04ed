"""All schedules, worker counts and sizes give the bits of plain evaluation in program order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from eventtensor.config import Options
from eventtensor.runtime.cpu_kernel import CpuKernel

SCHEDULES = ("static", "ticket", "push")
SIZES = {
    "row_sum": [{"n": n} for n in (33, 1, 4000, 32, 64, 31)],
    "ragged": [{"m": m} for m in (5, 1, 64, 2)],
    "carried": [{"n": n, "layers": k} for n, k in ((33, 3), (8, 1), (200, 7), (1, 20))],
}


@pytest.fixture(scope="module")
def plans(lab):
    made = itertools.product(lab.programs, SCHEDULES)
    return {(n, s): lab.plan(lab.programs[n](), s) for n, s in made}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", SIZES)
def test_bits_do_not_depend_on_schedule_or_workers(name, schedule, plans, lab) -> None:
    plan = plans[name, schedule]
    cases = []
    for k, dims in enumerate(SIZES[name]):
        arrays = lab.arrays(plan, dims, seed=k)
        cases.append((dims, arrays, lab.reference(plan, dims, arrays)))
    for workers in (1, 2, 3, 64):
        kernel = CpuKernel(plan, Options(workers=workers))
        for dims, arrays, expected in cases * 2:
            mine = {k: v.copy() for k, v in arrays.items()}
            kernel.launch(dims, mine)
            lab.assert_same(mine, expected)
        kernel.close()


@pytest.mark.parametrize("schedule", ("static", "push"))
def test_injected_delays_change_nothing(schedule, plans, lab) -> None:
    plan, dims = plans["carried", schedule], {"n": 50, "layers": 3}
    arrays = lab.arrays(plan, dims)
    expected = lab.reference(plan, dims, arrays)
    kernel = CpuKernel(plan, Options(workers=4, debug=True))
    for seed in range(1, 8):
        mine = {k: v.copy() for k, v in arrays.items()}
        kernel.launch(dims, mine, delay_seed=seed)
        lab.assert_same(mine, expected)
    kernel.close()


def test_an_empty_ragged_grid_runs(plans, lab) -> None:
    for schedule in ("static", "ticket", "push"):
        plan, dims = plans["ragged", schedule], {"m": 3}
        arrays = lab.arrays(plan, dims)
        arrays["tiles"][:] = 0
        kernel = CpuKernel(plan, Options(workers=2))
        kernel.launch(dims, arrays)
        assert not arrays["z"].any()
        arrays["tiles"][:] = (0, 3, 0, 1, 0)
        expected = lab.reference(plan, dims, arrays)
        kernel.launch(dims, arrays)
        lab.assert_same(arrays, expected)
        kernel.close()


def test_source_does_not_depend_on_the_range_of_a_dim(lab) -> None:
    """A static schedule is a loop over the dims, not a table."""
    import eventtensor as et

    def program(top: int) -> et.Program:
        n = et.dim("n", max=top)
        p = et.Program("sums")
        a, c = p.input("a", (n, 8), et.f32), p.output("c", (n,), et.f32)
        p.call(lab.tasks.row_sums, grid=(n.tiles(4),), reads=lambda i: a[i * 4 : i * 4 + 4, :],
               writes=lambda i: c[i * 4 : i * 4 + 4])
        return p

    kernels = [CpuKernel(lab.plan(program(top)), Options(workers=1)) for top in (64, 10**6)]
    small, large = (k.source.replace("1000000", "64") for k in kernels)
    assert small == large


def test_launches_from_many_threads_are_ordered(plans, lab) -> None:
    import threading

    plan, dims = plans["row_sum", "push"], {"n": 100}
    kernel = CpuKernel(plan, Options(workers=2))
    wrong: list[int] = []

    def run(seed: int) -> None:
        arrays = lab.arrays(plan, dims, seed)
        expected = lab.reference(plan, dims, arrays)
        for _ in range(5):
            kernel.launch(dims, arrays)
            if not np.array_equal(arrays["c"], expected["c"]):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    kernel.close()
