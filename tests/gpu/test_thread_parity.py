"""Tests of the C++ back end that hold for the device too, run with its kernels: regions, value
semantics, accumulation, conversions, stuck waits, debug checks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.errors import BadOption, BoundViolated, FactViolated
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from tests.backend import test_failures as failures
from tests.backend import test_regions as regions

CASES: dict[str, Callable[..., None]] = {
    "halos": partial(regions.test_padded_halos_hold_their_value, debug=False),
    "halos_debug": partial(regions.test_padded_halos_hold_their_value, debug=True),
    "rows": partial(regions.test_rows_gather_and_scatter, debug=False),
    "rows_debug": partial(regions.test_rows_gather_and_scatter, debug=True),
    "overwrite": regions.test_a_task_reads_what_it_overwrites_as_it_was,
    "ordered_f32": partial(regions.test_ordered_accumulation_is_repeatable, kind=et.f32),
    "ordered_bf16": partial(regions.test_ordered_accumulation_is_repeatable, kind=et.bf16),
    "ordered_i32": partial(regions.test_ordered_accumulation_is_repeatable, kind=et.i32),
    "unordered": regions.test_unordered_accumulation_loses_nothing,
    "halves": regions.test_half_formats_round_like_numpy_everywhere,
    "names": regions.test_names_of_cpp_are_legal_names_of_a_program,
    "old_index": regions.test_an_index_loaded_from_a_written_tensor_is_the_old_one,
    "stuck": partial(
        failures.test_a_stuck_wait_names_all_and_the_next_launch_works, schedule="static"
    ),
    "stuck_ticket": partial(
        failures.test_a_stuck_wait_names_all_and_the_next_launch_works, schedule="ticket"
    ),
    "stuck_queue": failures.test_a_queue_that_never_fills_is_a_stuck_wait,
    "patience": failures.test_a_wait_lasts_while_a_task_runs,
    "bound": partial(
        failures.test_debug_checks_facts_of_inputs_before_the_launch,
        facts={"bound": (0, 7)}, at=[0, 1, 2, 3, 4, 8], error=BoundViolated,
    ),
    "distinct": partial(
        failures.test_debug_checks_facts_of_inputs_before_the_launch,
        facts={"bound": (0, 7), "distinct": (0,)}, at=[0, 1, 2, 3, 1, 5], error=FactViolated,
    ),
    "counts": failures.test_debug_finds_over_and_under_notification,
    "stated": failures.test_debug_checks_stated_facts,
    "computed": failures.test_debug_checks_bounds_of_computed_indices,
    "outside": failures.test_debug_checks_regions_against_their_tensor,
    "closed": failures.test_a_closed_kernel_says_so,
    "negative": failures.test_negative_workers_are_refused,
    "no_bound": failures.test_a_queue_needs_a_bound,
}


@pytest.mark.parametrize("name", CASES)
def test_the_device_behaves_like_the_threads(
    name: str, lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (regions, failures):
        monkeypatch.setattr(module, "CpuKernel", CudaKernel)
    CASES[name](lab)


def test_more_workers_than_run_at_once_are_refused(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    with pytest.raises(BadOption, match="at the same time"):
        CudaKernel(plan, Options(target="cuda", workers=10**6))
