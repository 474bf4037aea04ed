"""Every hand-off on the device: a hundred launches at changing sizes give the threads' results, and
a word that never comes is a stuck wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options, environment
from eventtensor.errors import StuckWait
from eventtensor.ir.expr import Const, add, compare, mul
from eventtensor.ir.plan import HandoffKind, Plan
from eventtensor.runtime.cpu_kernel import CpuKernel
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from examples.chain import chain
from examples.mlp import mlp
from tests.backend.conftest import Arrays, assert_same, carried, make_arrays, make_plan
from tests.gpu.arrays import all_bits, equal_bits
from tests.gpu.batch import launch_all
from tests.gpu.stored import stored
from tests.gpu.variants import cuda_kernel
from tests.support.backends import copies
from tests.support.handoffs import broadcast, halo, halves, layers, matrix, pair, two_ways

SCHEDULES = ("static", "static:round_robin", "static:affine", "ticket", "push", "auto")
LAUNCHES = 100
# name: (program, hand-offs that are legal under some schedule, largest of each dim, exact)
PROGRAMS: dict[str, tuple[Callable[[], et.Program], tuple[str, ...], dict[str, int], bool]] = {
    "pair": (pair, ("same_worker", "tagged", "bulk"), {"n": 40}, True),
    "pair_16": (lambda: pair(8, 16), ("tagged", "bulk"), {"n": 40}, True),
    "pair_bf16": (lambda: pair(dtype=et.bf16), ("same_worker", "tagged", "bulk"), {"n": 40}, True),
    "pair_i32": (lambda: pair(dtype=et.i32), ("same_worker", "tagged", "bulk"), {"n": 40}, True),
    "pair_u8": (lambda: pair(dtype=et.u8), ("tagged",), {"n": 40}, True),
    "broadcast": (broadcast, ("tagged", "bulk"), {}, True),
    "halo": (halo, ("tagged",), {"n": 60}, True),
    "halves": (halves, ("same_worker", "tagged", "bulk"), {}, True),
    "layers": (lambda: layers(True), ("same_worker", "tagged", "bulk"), {"depth": 8}, True),
    "matrix": (matrix, ("tagged", "bulk"), {"n": 40}, True),
    "matrix_odd": (lambda: matrix(3, 5), ("tagged",), {"n": 40}, True),
    "two_ways": (two_ways, ("same_worker", "tagged"), {}, True),
    "carried": (carried, ("same_worker", "bulk"), {"n": 200, "layers": 9}, True),
    "mlp": (mlp, ("tagged", "bulk"), {"n": 70}, False),
    "chain": (chain, ("tagged", "bulk"), {"layers": 12}, False),
}


def legal_plan(program: et.Program, handoff: str, schedule: str) -> Plan | None:
    try:
        state = run_passes(program, Options(target="cuda", schedule=schedule, handoff=handoff))
    except et.EventTensorError:
        return None
    assert state.report is not None and state.report.ok and state.plan is not None
    return state.plan


def sizes(most: dict[str, int], seed: int) -> Iterator[dict[str, int]]:
    rng = np.random.default_rng(seed)
    while True:
        yield {name: int(rng.integers(1, top + 1)) for name, top in most.items()}


@cache
def by_threads(name: str) -> list[tuple[dict[str, int], Arrays, Arrays]]:
    """Dims and arrays of every launch, and what the threads make of them: they know no hand-off,
    and no schedule changes a bit of theirs. Not to be changed."""
    make, _, most, _ = PROGRAMS[name]

    def launched() -> list[tuple[dict[str, int], Arrays, Arrays]]:
        found = []
        plan = make_plan(make())
        cpu = CpuKernel(plan, Options(workers=2))
        for k, dims in zip(range(LAUNCHES), sizes(most, seed=7), strict=False):
            given = make_arrays(plan, dims, seed=k % 5)
            theirs = copies(given)
            cpu.launch(dims, theirs)
            found.append((dims, given, theirs))
        cpu.close()
        return found

    return stored(f"by_threads_{name}", launched)


def same(mine: Arrays, theirs: Arrays, exact: bool, what: str) -> None:
    for name, x in theirs.items():
        if equal_bits(mine[name], x):
            continue
        if exact:
            np.testing.assert_array_equal(mine[name], x, err_msg=f"{what} {name}")
        else:
            got, want = mine[name].astype(np.float64), x.astype(np.float64)
            off = np.linalg.norm(got - want) / np.linalg.norm(want)
            assert off <= 2e-2, f"{what} {name} is off by {off:.1e} of its norm"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "name, handoff", [(n, h) for n, (_, kinds, _, _) in PROGRAMS.items() for h in kinds])
def test_a_hundred_launches_give_what_the_threads_give(
    name: str, handoff: str, schedule: str
) -> None:
    make, _, _, exact = PROGRAMS[name]
    plan = legal_plan(make(), handoff, schedule)
    if plan is None:
        pytest.skip(f"{handoff} is not legal for {name} under {schedule}")
    assert any(h.kind is HandoffKind(handoff) for h in plan.handoffs)
    launches = by_threads(name)
    with cuda_kernel(plan) as kernel:
        found = launch_all(kernel, [launch[:2] for launch in launches])
        for k, ((dims, _, theirs), mine) in enumerate(zip(launches, found, strict=True)):
            same(mine, theirs, exact, f"launch {k}, {dims}:")
        assert kernel.compilations == 1


@pytest.mark.parametrize("name", ("pair", "broadcast", "layers", "chain", "mlp"))
def test_bits_do_not_depend_on_the_hand_off_or_the_workers(name: str) -> None:
    make, kinds, most, _ = PROGRAMS[name]
    dims = next(sizes(most, seed=3))
    seen = set()
    for handoff in ("counter", "auto", *kinds):
        plan = legal_plan(make(), handoff, "auto")
        if plan is None:
            continue
        given = make_arrays(plan, dims, seed=1)
        for workers in (0, 1):
            with cuda_kernel(plan, workers=workers) as kernel:
                seen |= {all_bits(mine) for mine in launch_all(kernel, [(dims, given)] * 3)}
        with cuda_kernel(plan, workers=3, debug=True) as kernel:
            for _ in range(3):
                mine = copies(given)
                kernel.launch(dims, mine)
                seen.add(all_bits(mine))
    assert len(seen) == 1


def without_the_last_tile(plan: Plan) -> Plan:
    """From n = 5 on the first grid lacks its last tile: the proof has been made before."""
    first, *rest = plan.program.body
    axis = first.grid[0]
    n = plan.program.dims[0]
    short = replace(axis, extent=add(axis.extent, mul(Const(-1), compare("<=", 5, n))))
    body = (replace(first, grid=(short,)), *rest)
    return replace(plan, program=replace(plan.program, body=body))


@pytest.mark.parametrize("schedule", ("static", "ticket"))
def test_a_word_that_never_comes_is_a_stuck_wait_and_the_next_launch_works(schedule: str) -> None:
    plan = legal_plan(pair(), "tagged", schedule)
    assert plan is not None
    quick = replace(environment(), wait_limit_s=0.3)
    kernel = CudaKernel(without_the_last_tile(plan), Options(target="cuda"), quick)
    cpu = CpuKernel(plan, Options(workers=2))
    for _ in range(2):
        with pytest.raises(StuckWait) as caught:
            kernel.launch({"n": 5}, make_arrays(plan, {"n": 5}))
        message = str(caught.value)
        assert "use(9) waits for x[" in message and "epoch" in message and "n = 5" in message
        mine = make_arrays(plan, {"n": 4})
        theirs = copies(mine)
        kernel.launch({"n": 4}, mine)
        cpu.launch({"n": 4}, theirs)
        assert_same(mine, theirs)
    kernel.close()
    cpu.close()
