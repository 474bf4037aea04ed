"""The examples as one cooperative kernel: every schedule and legal hand-off, changing sizes, any
number of workers, with and without the stream."""

from __future__ import annotations

import pytest

from tests.gpu.arrays import EXAMPLES, all_bits, assert_near, case
from tests.gpu.batch import launch_all
from tests.gpu.variants import SCHEDULES, cuda_kernel, plans, proved
from tests.support.backends import copies

SIZES = (33, 1, 64, 7, 16, 40)
LAUNCHES = 100


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_hundred_launches_of_an_example_give_what_program_order_does(
    name: str, schedule: str
) -> None:
    sizes = [SIZES[k * k % len(SIZES)] if k % 7 else SIZES[k % len(SIZES)] for k in range(LAUNCHES)]
    launches = [case(name, n)[:2] for n in sizes]
    for handoff, plan in plans(proved(EXAMPLES[name].make(), schedule)):
        seen: dict[int, bytes] = {}
        with cuda_kernel(plan) as kernel:
            for k, (n, got) in enumerate(zip(sizes, launch_all(kernel, launches), strict=True)):
                what = f"{handoff}, launch {k}, n = {n}"
                if n not in seen:
                    assert_near(name, got, case(name, n)[2], what)
                    seen[n] = all_bits(got)
                assert seen[n] == all_bits(got), what
            assert kernel.compilations == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_debug_mode_agrees_and_finds_nothing_under_delays(name: str, schedule: str) -> None:
    plan = proved(EXAMPLES[name].make(), schedule).plan
    assert plan is not None
    with cuda_kernel(plan, debug=True) as kernel:
        for seed, n in enumerate((33, 1, 7, 33)):
            dims, arrays, wanted = case(name, n)
            got = copies(arrays)
            kernel.launch(dims, got, delay_seed=seed)
            assert_near(name, got, wanted, f"n = {n}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_bits_are_equal_across_schedules_handoffs_workers_and_runs(name: str) -> None:
    dims, arrays, _ = case(name, 33)
    seen = set()
    for schedule in SCHEDULES:
        for _, plan in plans(proved(EXAMPLES[name].make(), schedule)):
            for workers in (0, 1, 3):
                with cuda_kernel(plan, workers=workers) as kernel:
                    seen |= {all_bits(got) for got in launch_all(kernel, [(dims, arrays)] * 3)}
    assert len(seen) == 1


@pytest.mark.parametrize("name", ("mlp", "blocks", "chain"))
def test_without_the_stream_the_result_is_as_near(name: str) -> None:
    plan = proved(EXAMPLES[name].make(), "static", stream=False).plan
    assert plan is not None
    with cuda_kernel(plan, stream=False) as kernel:
        found = launch_all(kernel, [case(name, n)[:2] for n in SIZES])
        for n, got in zip(SIZES, found, strict=True):
            assert_near(name, got, case(name, n)[2], f"n = {n}")
