"""One event per expert: an expert that is held back delays no other, under every schedule."""

from __future__ import annotations

import numpy as np
import pytest

from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.interp import Task, run
from eventtensor.runtime.cpu_kernel import CpuKernel, HoldBack
from examples.moe import COLS, EXPERTS, HIDDEN, ROWS, TOP, WIDTH, moe
from examples.moe_reference import moe_arrays, moe_reference

N = 12


def routed(values: dict[str, np.ndarray]) -> np.ndarray:
    """Which experts each token goes to."""
    logits = values["x"].astype(np.float64) @ values["router"]
    return np.argsort(-logits, axis=1, kind="stable")[:, :TOP]


def independent_of_tile_0(values: dict[str, np.ndarray]) -> int:
    """Tasks that do not need gate_up(0, 0, 0): all but itself, the down tiles of those rows, and
    the tokens that combine expert 0."""
    chosen = routed(values)
    tiles = [-(-int((chosen == e).sum()) // ROWS) for e in range(EXPERTS)]
    columns = HIDDEN // COLS + WIDTH // COLS
    everything = 3 * N + 1 + sum(tiles) * columns
    return everything - 1 - WIDTH // COLS - int((chosen == 0).any(axis=1).sum())


def arrays() -> dict[str, np.ndarray]:
    return moe_arrays(N, np.random.default_rng(3))


@pytest.mark.parametrize("schedule", ["static", "ticket", "push", "auto"])
def test_holding_expert_0_delays_no_other_expert(schedule):
    values = arrays()
    assert {0, 1} <= set(routed(values).ravel().tolist())
    plan = run_passes(moe(), Options(schedule=schedule)).plan
    kernel = CpuKernel(plan, Options(workers=64, debug=True, trace=True))
    hold = HoldBack("gate_up", (0, 0, 0), independent_of_tile_0(values))
    kernel.launch({"n": N}, values, hold=[hold])
    names = [p.call.name for p in plan.program.calls]
    ended = [
        (names[int(r["call"])], tuple(int(c) for c in r["coords"]))
        for r in sorted(kernel.trace.records, key=lambda r: r["t_end"])
    ]
    held = ended.index(("gate_up", (0, 0, 0)))
    others = [k for k, (call, coords) in enumerate(ended) if call == "down" and coords[0] > 0]
    assert others and max(others) < held
    np.testing.assert_allclose(values["out"], moe_reference(values), rtol=2e-5, atol=2e-5)
    kernel.close()


def test_events_alone_let_the_other_experts_finish_first():
    plan = run_passes(moe(), Options()).plan
    report = run(plan, {"n": N}, arrays(), hold=Task("gate_up", (0, 0, 0)), debug=True)
    report.raise_if_bad()
    held = report.order.index(Task("gate_up", (0, 0, 0)))
    others = [k for k, t in enumerate(report.order) if t.call == "down" and t.coords[0] > 0]
    assert others and max(others) < held


@pytest.mark.parametrize("skew", ["all to one pair", "an empty expert"])
def test_skewed_routing_is_right(skew):
    values = arrays()
    values["x"] = np.abs(values["x"])
    values["router"][:] = 0
    favoured = (1, 2) if skew == "all to one pair" else (0, 1, 3)
    for k, e in enumerate(favoured):
        values["router"][:, e] = 1 + 0.1 * k
    plan = run_passes(moe(), Options()).plan
    kernel = CpuKernel(plan, Options(workers=3, debug=True))
    kernel.launch({"n": N}, values)
    np.testing.assert_allclose(values["out"], moe_reference(values), rtol=2e-4, atol=2e-4)
    kernel.close()
