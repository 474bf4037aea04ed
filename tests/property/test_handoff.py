"""Hand-offs of random programs, against ground truth: without the events that flags replace, the
interpreter finds races on the flagged tensors only, and edges on one worker really are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import BadOption
from eventtensor.interp.run_report import RaceKind
from eventtensor.ir.plan import HandoffKind, Plan, visit
from eventtensor.ir.walk import evaluate
from tests.support.backends import ORDERS, make_arrays, run_interp
from tests.support.blocks import FAMILIES, seeded
from tests.support.draw import Drawn
from tests.support.handoffs import broadcast, halo, layers, matrix, pair, two_ways

SMALL = {
    "pair": (pair, {"n": 3}), "broadcast": (broadcast, {}), "layers": (lambda: layers(True),
    {"depth": 3}), "halo": (halo, {"n": 4}), "matrix": (matrix, {"n": 2}), "two": (two_ways, {}),
}


def plan_for(program: object, handoff: str, schedule: str) -> Plan | None:
    options = Options(target="cuda", schedule=schedule, handoff=handoff)
    try:
        state = run_passes(program, options)  # type: ignore[arg-type]
    except BadOption:
        return None
    assert state.report is not None and state.report.ok
    return state.plan


def without_flags(plan: Plan) -> Plan:
    """Only the order that counters give."""
    gone = {h.event for h in plan.handoffs if h.kind is HandoffKind.tagged}
    calls = tuple(
        replace(c, waits=tuple(w for w in c.waits if w.event not in gone),
                notifies=tuple(n for n in c.notifies if n.event not in gone))
        for c in plan.calls
    )
    return replace(plan, calls=calls, events=tuple(e for e in plan.events if e.name not in gone),
                   releases=tuple(r for r in plan.releases if r.event not in gone))


def check_flags(plan: Plan, dims: dict[str, int], arrays: dict) -> None:
    flagged = {t for h in plan.handoffs if h.kind is HandoffKind.tagged for t in h.tensors}
    bare = without_flags(plan)
    for order, seed in ORDERS:
        _, report = run_interp(bare, dims, arrays, order, seed, debug=False)
        assert report.deadlock is None and not report.over_notified
        for race in report.races:
            assert race.tensor in flagged and race.kind is RaceKind.uncovered_read, str(race)


@pytest.mark.parametrize("name", SMALL)
def test_flags_leave_races_on_their_tensor_only(name: str) -> None:
    make, dims = SMALL[name]
    plan = plan_for(make(), "tagged", "static")
    assert plan is not None
    check_flags(plan, dims, make_arrays(plan.program, dims))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_flags_of_random_programs_leave_races_on_their_tensors_only(
    family: str, seed: int
) -> None:
    drawn: Drawn = seeded(seed, family, small=True)
    plan = plan_for(drawn.program, "tagged", "static")
    if plan is None:
        return
    for dims in drawn.dims:
        check_flags(plan, dims, make_arrays(drawn.program, dims, 0, drawn.given(dims)))


# ---- workers -------------------------------------------------------------------------------


def tasks(plan: Plan, call: str, dims: dict[str, int]) -> Iterator[tuple[dict[str, int], int]]:
    """Coordinates of each task and, from worker 0 on, the number of its tile with its shift."""
    placed = plan.program.placed(call)

    def level(k: int, env: dict[str, int], number: int) -> Iterator[tuple[dict[str, int], int]]:
        if k == len(placed.axes):
            yield env, number + evaluate(plan.call(call).schedule.shift, env)
            return
        axis = placed.axes[k]
        n = evaluate(axis.extent, env)
        for v in range(n):
            inner = number * n + v if k >= len(placed.loops) else 0
            yield from level(k + 1, {**env, axis.var: v}, inner)

    yield from level(0, dict(dims), 0)


def check_workers(plan: Plan, dims: dict[str, int]) -> int:
    edges = [h for h in plan.handoffs if h.kind is HandoffKind.same_worker]
    for h in edges:
        owner: dict[tuple[int, ...], set[int]] = {}
        for c in plan.calls:
            for n in (n for n in c.notifies if n.event == h.event):
                for env, at in tasks(plan, c.call, dims):
                    for nest in n.cells:
                        for cell in visit(nest, env):
                            owner.setdefault(cell, set()).add(at)
        for w in (w for w in plan.call(h.call).waits if w.event == h.event):
            for env, at in tasks(plan, h.call, dims):
                for nest in w.cells:
                    for cell in visit(nest, env):
                        assert owner.get(cell, {at}) == {at}, f"{h}: {env}"
    return len(edges)


@pytest.mark.parametrize("schedule", ("static:affine", "static:round_robin", "auto"))
def test_edges_on_one_worker_are_for_any_number_of_workers(schedule: str) -> None:
    found = 0
    for make, dims in SMALL.values():
        plan = plan_for(make(), "same_worker", schedule)
        found += 0 if plan is None else check_workers(plan, dims)
    for family in FAMILIES:
        for seed in range(3):
            drawn = seeded(seed, family, small=True)
            plan = plan_for(drawn.program, "same_worker", schedule)
            if plan is not None:
                found += sum(check_workers(plan, dims) for dims in drawn.dims)
    assert found > 0
