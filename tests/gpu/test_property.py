"""Random right programs as one kernel: under every schedule and legal hand-off a hundred launches
at changing sizes, without a reset, give the bits of program order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.gpu.batch import launch_all
from tests.gpu.variants import SCHEDULES, cuda_kernel, plans, proved
from tests.support.backends import Arrays, make_arrays, run_direct
from tests.support.blocks import FAMILIES, seeded
from tests.support.draw import Drawn

LAUNCHES, SIZES = 100, 6


def cases(drawn: Drawn, seed: int) -> list[tuple[dict[str, int], Arrays, Arrays]]:
    """Some (dims, arrays, what program order makes of them), small and large in turn."""
    rng = random.Random(seed)
    most = {"n": 15, "m": 11, "L": 5}
    sizes = [*drawn.dims]
    while len(sizes) < SIZES:
        sizes.append({d.name: rng.randint(1, most[d.name]) for d in drawn.program.dims})
    found = []
    for k, dims in enumerate(sizes):
        arrays = make_arrays(drawn.program, dims, k, drawn.given(dims, k))
        found.append((dims, arrays, run_direct(drawn.program, dims, arrays)))
    return found


def turns(kinds: int, seed: int) -> list[int]:
    """Which case each launch takes: all pairs of neighbours come by."""
    rng = random.Random(seed)
    return [rng.randrange(kinds) for _ in range(LAUNCHES)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_hundred_launches_give_the_bits_of_program_order(
    family: str, schedule: str, seed: int
) -> None:
    drawn = seeded(seed, family, small=True)
    known = cases(drawn, seed)
    order = turns(len(known), seed)
    tried = []
    for handoff, plan in plans(proved(drawn.program, schedule)):
        tried.append(handoff)
        with cuda_kernel(plan) as kernel:
            found = launch_all(kernel, [known[k][:2] for k in order])
            for launch, (k, got) in enumerate(zip(order, found, strict=True)):
                dims, _, wanted = known[k]
                for name, array in wanted.items():
                    what = f"{name}, {handoff}, launch {launch}, {dims}\n{drawn.outline}"
                    np.testing.assert_array_equal(got[name], array, err_msg=what)
            assert kernel.compilations == 1
    assert {"auto", "counter"} <= set(tried)
