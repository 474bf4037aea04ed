"""ThreadSanitizer over the examples, as standalone programs, under each schedule."""

from __future__ import annotations

import numpy as np
import pytest

from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.interp import run_reference
from eventtensor.runtime.standalone_program import run_standalone
from examples.mlp import mlp
from examples.moe import moe
from examples.moe_reference import moe_arrays
from examples.row_sum import row_sum
from examples.tour import mlp_arrays, row_sum_arrays

CASES = {
    "row_sum": (row_sum, row_sum_arrays),
    "mlp": (mlp, mlp_arrays),
    "moe": (moe, moe_arrays),
}


@pytest.mark.parametrize(
    "name, schedule",
    [("row_sum", "push"), ("mlp", "static"), ("moe", "static"), ("moe", "ticket"), ("moe", "push")],
)
def test_no_race_is_seen_in_an_example(name, schedule):
    make, arrays = CASES[name]
    plan = run_passes(make(), Options(schedule=schedule)).plan
    launches = [({"n": n}, arrays(n, np.random.default_rng(n))) for n in (33, 5, 40)]
    found = run_standalone(plan, launches, workers=4)
    assert found.status == 0 and found.races == 0, found.log
    for (dims, values), seen in zip(launches, found.tensors, strict=True):
        expected = {k: v.copy() for k, v in values.items()}
        run_reference(plan.program, dims, expected)
        for k, v in expected.items():
            got, wanted = seen[k].astype(np.float64), v.astype(np.float64)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
