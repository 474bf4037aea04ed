"""Streamed operands on the GPU: what the interpreter's order gives within the bound of a product,
the same bits whatever the schedule, the workers and the run, and nothing left in the ring."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import Misaligned
from eventtensor.ir.program import Program
from eventtensor.ir.tensor import Role
from eventtensor.ir.walk import evaluate
from tests.gpu.arrays import Arrays, all_bits, equal_bits
from tests.gpu.batch import launch_all
from tests.gpu.variants import cuda_kernel
from tests.support.backends import copies, run_direct
from tests.support.streams import PROGRAMS, linear


def arrays_of(program: Program, dims: dict[str, int], seed: int) -> Arrays:
    """Random floats; outputs begin as NaN."""
    rng = np.random.default_rng(seed)
    out = {}
    for t in program.tensors:
        shape = tuple(evaluate(s, dims) for s in t.shape)
        if t.role is Role.output:
            out[t.name] = np.full(shape, np.nan, t.dtype.numpy)
        elif t.role is not Role.scratch:
            out[t.name] = (rng.standard_normal(shape) / 4).astype(t.dtype.numpy)
    return out


def plan_of(name: str, schedule: str, **options):
    state = run_passes(PROGRAMS[name][0](), Options(target="cuda", schedule=schedule, **options))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def assert_close(got: Arrays, wanted: Arrays, where: str) -> None:
    for name, x in wanted.items():
        if equal_bits(got[name], x):
            continue
        a, b = got[name].astype(np.float64), x.astype(np.float64)
        assert np.isfinite(a).all(), f"{name}: {where}"
        error = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)
        assert error <= 4e-3, f"{name} is off by {error:.1e} of its norm: {where}"


@pytest.mark.parametrize("schedule", ("static", "ticket"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hundred_launches_are_right(name: str, schedule: str) -> None:
    plan = plan_of(name, schedule)
    assert plan.streams
    launches = PROGRAMS[name][1]
    given = [arrays_of(plan.program, dims, k) for k, dims in enumerate(launches)]
    wanted = [run_direct(plan.program, d, a) for d, a in zip(launches, given, strict=True)]
    turns = [k * k % 7 % len(launches) for k in range(100)]
    with cuda_kernel(plan) as kernel:
        found = launch_all(kernel, [(launches[at], given[at]) for at in turns])
        for k, (at, got) in enumerate(zip(turns, found, strict=True)):
            assert_close(got, wanted[at], f"launch {k}, {launches[at]}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_do_not_depend_on_schedule_workers_and_run(name: str) -> None:
    dims = PROGRAMS[name][1][-1]
    seen = set()
    for schedule in ("static", "ticket"):
        plan = plan_of(name, schedule)
        given = arrays_of(plan.program, dims, 3)
        for workers in (0, 1, 5):
            with cuda_kernel(plan, workers=workers) as kernel:
                seen |= {all_bits(got) for got in launch_all(kernel, [(dims, given)] * 3)}
    assert len(seen) == 1


@pytest.mark.parametrize("name", ("layers", "packed"))
def test_checks_of_debug_and_delays_change_nothing(name: str) -> None:
    plan, dims = plan_of(name, "ticket"), PROGRAMS[name][1][-1]
    given = arrays_of(plan.program, dims, 3)
    wanted = run_direct(plan.program, dims, given)
    with cuda_kernel(plan, debug=True) as kernel:
        for seed in range(4):
            got = copies(given)
            kernel.launch(dims, got, delay_seed=seed)
            assert_close(got, wanted, f"seed {seed}")


def test_a_streamed_argument_must_be_aligned() -> None:
    torch = pytest.importorskip("torch")
    kernel = et.compile(linear(), target="cuda")
    memory = torch.zeros(100 * 512 + 1, dtype=torch.bfloat16, device="cuda")
    x = torch.zeros((2, 512), dtype=torch.bfloat16, device="cuda")
    y = torch.zeros((2, 100), dtype=torch.float32, device="cuda")
    with pytest.raises(Misaligned, match="'w'"):
        kernel.bind(x=x, w=memory[1:].view(100, 512), y=y)
    kernel.bind(x=x, w=memory[:-1].view(100, 512), y=y)()
    kernel.synchronize()
    kernel.close()
