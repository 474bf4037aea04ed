"""Random right programs on real threads: every schedule and worker count gives the bits of program
order, at several sizes with one compile."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.backends import copies, cpu_kernel, make_arrays, passes, run_direct
from tests.support.blocks import FAMILIES, seeded

SCHEDULES = ("static", "ticket", "push")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("family", FAMILIES)
def test_threads_compute_what_program_order_does(family: str, schedule: str) -> None:
    drawn = seeded(SCHEDULES.index(schedule), family, small=True)
    state = passes(drawn.program, schedule)
    assert state.report is not None and state.report.ok, f"{drawn.outline}\n{state.report}"
    assert state.plan is not None
    for workers in (1, 2, 3):
        with cpu_kernel(state.plan, workers) as kernel:
            for dims in drawn.dims:
                arrays = make_arrays(drawn.program, dims, 0, drawn.given(dims))
                want, got = run_direct(drawn.program, dims, arrays), copies(arrays)
                kernel.launch(dims, got)
                for name, array in want.items():
                    np.testing.assert_array_equal(got[name], array, err_msg=f"{name} {dims}")
