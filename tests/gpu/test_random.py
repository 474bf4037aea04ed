"""Random right programs as one kernel: every schedule gives the bits of program order, at several
sizes with one compile."""

from __future__ import annotations

import numpy as np
import pytest
from support.backends import copies, make_arrays, passes, run_direct
from support.blocks import FAMILIES, seeded

from eventtensor.config import Options
from eventtensor.runtime.cuda import CudaKernel

SCHEDULES = ("static", "ticket", "push")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_compute_what_program_order_does(family: str, schedule: str, seed: int) -> None:
    drawn = seeded(seed, family, small=True)
    plan = passes(drawn.program, schedule).plan
    assert plan is not None
    kernel = CudaKernel(plan, Options(target="cuda"))
    for dims in drawn.dims:
        arrays = make_arrays(drawn.program, dims, 0, drawn.given(dims))
        want, got = run_direct(drawn.program, dims, arrays), copies(arrays)
        kernel.launch(dims, got)
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array, err_msg=f"{name} {dims}")
    kernel.close()
