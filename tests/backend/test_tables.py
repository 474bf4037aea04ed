"""Numbers that say where weights lie, which the loader takes from words or finds itself, in the
emulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import StuckWait
from eventtensor.ir.expr import Const
from eventtensor.ir.plan import HandoffKind, Nest, Plan, Wait
from tests.support.emulated import emulated_kernel
from tests.support.streams import plan_of
from tests.support.tables import listed, ranked


def table(**options: object) -> Plan:
    plan = plan_of(listed(), **options)
    assert [h.kind for h in plan.handoffs if h.event == "made"] == [HandoffKind.tagged_index]
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


# ---- numbers that are found again ------------------------------------------------------------


def again(schedule: str = "static", parts: int = 3, size: int = 64, gap: int = 0) -> Plan:
    plan = plan_of(ranked(parts, size, gap=gap), schedule=schedule)
    assert [h.kind for h in plan.handoffs if h.event == "known"] == [HandoffKind.recompute]
    return plan


def scores(rng: np.random.Generator, parts: int, size: int) -> np.ndarray:
    """Few values, so that many are equal; zeros of both signs, infinities, and some NaN."""
    found = rng.integers(-2, 3, (parts, size)).astype(np.float32)
    found[:, rng.integers(0, size, 4)] = -0.0
    for special in (np.inf, -np.inf, np.nan):
        found[0, rng.integers(0, size)] = special
    return found


def best(given: np.ndarray) -> np.ndarray:
    """The places of the 8 largest: the lower of equal ones first, NaN last."""
    whole = given[0]
    for part in given[1:]:
        whole = whole + part
    return np.lexsort((np.arange(whole.size), -whole))[:8]


@pytest.mark.parametrize("schedule", ("static", "ticket"))
@pytest.mark.parametrize(
    ("workers", "parts", "size", "gap"), [(1, 3, 64, 0), (3, 1, 256, 0), (10, 4, 128, 2)])
def test_each_launch_finds_its_own_numbers(
    schedule: str, workers: int, parts: int, size: int, gap: int
) -> None:
    with emulated_kernel(again(schedule, parts, size, gap), workers) as kernel:
        for seed in range(4):
            rng = np.random.default_rng(seed)
            x, w = (rng.standard_normal(shape).astype(et.bf16.numpy)
                    for shape in ((4, 64), (size, 16, 64)))
            given = scores(rng, parts, size)
            a = {"x": x, "w": w, "given": given, "y": np.full((8, 4, 16), np.nan, np.float32)}
            kernel.launch({}, a)
            wanted = np.einsum("nk,imk->inm", x.astype(np.float64),
                               w[best(given)].astype(np.float64))
            np.testing.assert_allclose(a["y"], wanted, rtol=1e-4, atol=1e-4)


def test_a_loader_that_finds_nothing_goes_on_when_the_launch_is_given_up() -> None:
    """Nobody makes scores, and some workers have nothing to do but to wait for pages, which has no
    limit."""
    plan = again()
    start = replace(plan.events[0], name="never", count=Const(1))
    wait = Wait("never", (Nest((), (), ()),))
    calls = tuple(replace(c, waits=(wait,)) if c.call == "score" else c for c in plan.calls)
    stuck = replace(plan, events=(*plan.events, start), calls=calls)
    a = {"x": np.zeros((4, 64), et.bf16.numpy), "w": np.zeros((64, 16, 64), et.bf16.numpy),
         "given": np.zeros((3, 64), np.float32), "y": np.zeros((8, 4, 16), np.float32)}
    with emulated_kernel(stuck, 24, wait_limit_s=0.5) as kernel, \
            pytest.raises(StuckWait, match=r"waits for (never|.*scores)"):
        kernel.launch({}, a)
