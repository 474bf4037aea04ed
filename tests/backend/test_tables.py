"""Numbers that say where weights lie, which the loader takes from words, in the emulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.emulated import emulated_kernel
from support.streams import listed, plan_of

import eventtensor as et
from eventtensor.errors import StuckWait
from eventtensor.ir.expr import Const
from eventtensor.ir.plan import HandoffKind, Plan


def table(**options: object) -> Plan:
    plan = plan_of(listed(), **options)
    assert [h.kind for h in plan.handoffs if h.event == "made"] == [HandoffKind.table]
    return plan


def arrays(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape).astype(et.bf16.numpy) for shape in ((4, 64), (8, 16, 64)))
    return {"x": x, "w": w, "given": rng.integers(0, 8, 8).astype(np.int32),
            "y": np.full((8, 4, 16), np.nan, np.float32)}


@pytest.mark.parametrize("schedule", ("static", "ticket"))
@pytest.mark.parametrize("workers", (1, 3, 10))
def test_each_launch_goes_by_its_own_numbers(schedule: str, workers: int) -> None:
    with emulated_kernel(table(schedule=schedule), workers) as kernel:
        for seed in range(4):
            a = arrays(seed)
            kernel.launch({}, a)
            wanted = np.einsum("nk,imk->inm", a["x"].astype(np.float64),
                               a["w"][a["given"]].astype(np.float64))
            np.testing.assert_allclose(a["y"], wanted, rtol=1e-4, atol=1e-4)


def test_a_task_gives_up_though_the_loader_has_its_numbers() -> None:
    plan = table()
    late = tuple(replace(e, count=Const(2)) if e.name == "made" else e for e in plan.events)
    with emulated_kernel(replace(plan, events=late), 3, wait_limit_s=0.5) as kernel, \
            pytest.raises(StuckWait, match=r"go\(\d\) waits for made\[\]"):
        kernel.launch({}, arrays(0))


def test_the_loader_gives_up_with_the_tasks() -> None:
    """Nobody makes its numbers: those who would wait for something that never comes. Who waits for
    them may be the first to say so."""
    plan = table()
    start = replace(plan.events[0], name="never", count=Const(1))
    waits = tuple(replace(w, event="never") for w in plan.call("go").waits)
    calls = tuple(replace(c, waits=waits) if c.call == "list0" else c for c in plan.calls)
    stuck = replace(plan, events=(*plan.events, start), calls=calls)
    with emulated_kernel(stuck, 3, wait_limit_s=0.5) as kernel, \
            pytest.raises(StuckWait, match=r"waits for (never|made)\["):
        kernel.launch({}, arrays(0))
