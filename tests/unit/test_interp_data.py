"""Run-time data on the interpreter: grids, counts and maps that are read, on a small mixture of
experts with a hand-made plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import BadPlan, CountMismatch
from eventtensor.interp import Order, RaceKind, Report, Task, run, run_reference
from eventtensor.ir.expr import Const, ExprLike, Node, Var, load, wrap
from eventtensor.ir.plan import (
    CallPlan,
    Nest,
    Notify,
    Plan,
    Policy,
    Schedule,
    ScheduleKind,
    Wait,
)
from eventtensor.ir.program import EventTensor, Program

ORDERS = [(o, s) for o in Order for s in (0, 1, 2)]
TOKENS, EXPERTS = 6, 3
CHOICE = np.array([0, 2, 2, 0, 2, 0], np.int32)


def wait(event: str, *index: ExprLike) -> Wait:
    return Wait(event, (Nest((), (), tuple(wrap(e) for e in index)),))


def notify(event: str, *index: ExprLike) -> Notify:
    return Notify(event, (Nest((), (), tuple(wrap(e) for e in index)),))


def event(name: str, size: int, count: Node | int) -> EventTensor:
    return EventTensor(name, (Const(size),), wrap(count))


def call_plan(
    call: str,
    waits: Sequence[Wait] = (),
    notifies: Sequence[Notify] = (),
    header: Sequence[Wait] = (),
) -> CallPlan:
    schedule = Schedule(ScheduleKind.static, Policy.round_robin, "test", Const(0))
    return CallPlan(call, tuple(header), tuple(waits), tuple(notifies), schedule)


@et.task
def copy(x: Any, out: Any) -> None:
    out[:] = x


@et.task
def bump(x: Any, out: Any) -> None:
    out[:] = x + 1.0


@et.task
def total(x: Any, out: Any) -> None:
    out[:] = x.sum(axis=0)


@et.task
def histogram(chosen: Any, out: Any) -> None:
    same = chosen.reshape((1, TOKENS)) == et.iota(EXPERTS).reshape((EXPERTS, 1))
    out[:] = same.cast(et.i32).sum(axis=1)


def experts() -> Program:
    """Tokens choose experts; expert e gets one tile for each of its tokens; sums per expert."""
    p = et.Program("experts")
    choice = p.input("choice", (TOKENS,), et.i32)
    x = p.input("x", (EXPERTS, TOKENS), et.f32)
    chosen = p.scratch("chosen", (TOKENS,), et.i32, bound=(0, EXPERTS - 1))
    count = p.scratch("count", (EXPERTS,), et.i32, bound=(0, TOKENS))
    y = p.scratch("y", (EXPERTS, TOKENS), et.f32)
    z = p.output("z", (EXPERTS,), et.f32)
    p.call(copy, name="route", grid=(TOKENS,), reads=lambda t: choice[t],
           writes=lambda t: chosen[t])
    p.call(histogram, grid=(1,), reads=lambda i: chosen[:], writes=lambda i: count[:])
    p.call(bump, name="work", grid=(EXPERTS, lambda e: count[e]),
           reads=lambda e, k: x[e, k], writes=lambda e, k: y[e, k])
    p.call(total, name="sum", grid=(EXPERTS,), reads=lambda e: y[e, 0 : count[e]],
           writes=lambda e: z[e])
    return p.build()


def experts_plan(header: bool = True, update: bool = True) -> Plan:
    """`route` notifies the expert it chose (update); `done` has a count that is read."""
    e, t, c0 = Var("e"), Var("t"), Var("c0")
    routed = notify("U", load("chosen", (t,)))
    events = (event("R", 1, TOKENS), event("P", 1, 1), event("U", EXPERTS, load("count", (c0,))),
              event("D", EXPERTS, load("count", (c0,))))
    calls = (
        call_plan("route", notifies=[notify("R", 0), *([routed] if update else [])]),
        call_plan("histogram", [wait("R", 0)], [notify("P", 0)]),
        call_plan("work", [wait("U", e)], [notify("D", e)],
                  header=[wait("P", 0)] if header else []),
        call_plan("sum", [wait("P", 0), wait("D", e)]),
    )
    return Plan(experts(), events, calls, (), (), Const(0))


def expert_arrays() -> dict[str, np.ndarray]:
    x = np.arange(EXPERTS * TOKENS, dtype=np.float32).reshape(EXPERTS, TOKENS)
    return {"choice": CHOICE, "x": x, "z": np.full(EXPERTS, -1, np.float32)}


# ---- data-dependent grids, maps and counts -------------------------------------------------


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_a_grid_and_counts_that_are_read_run_clean(order: Order, seed: int) -> None:
    arrays = expert_arrays()
    report = run(experts_plan(), {}, arrays, order=order, seed=seed, debug=True)
    report.raise_if_bad()
    tiles = sorted(t.coords for t in report.order if t.call == "work")
    assert tiles == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2)]
    assert arrays["z"].tolist() == [0 + 1 + 2 + 3, 0, 12 + 13 + 14 + 3]
    assert report.cells["D", (1,)] == 0 and report.cells["D", (2,)] == 3
    again = expert_arrays()
    run_reference(experts(), {}, again, debug=True)
    np.testing.assert_array_equal(again["z"], arrays["z"])


def test_an_expert_does_not_wait_for_another() -> None:
    hold = lambda task: task.call == "work" and task.coords[0] == 0
    order = run(experts_plan(), {}, expert_arrays(), hold=hold).order
    first_held = min(order.index(Task("work", (0, k))) for k in range(3))
    assert order.index(Task("sum", (2,))) < first_held


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_a_grid_size_read_without_its_wait_is_a_race(order: Order, seed: int) -> None:
    report = run(experts_plan(header=False), {}, expert_arrays(), order=order, seed=seed)
    race = report.races[0]
    assert race.kind is RaceKind.uncovered_read and race.tensor == "count"
    assert race.first == Task("histogram", (0,)) and race.second == Task("work", (), header=True)
    assert report.uninitialised[0].task == race.second
    assert report.deadlock is None


def test_a_count_read_too_early_is_a_race_of_the_waiting_task() -> None:
    plan = experts_plan()
    swapped = replace(plan.calls[3], waits=plan.calls[3].waits[::-1])
    report = run(replace(plan, calls=(*plan.calls[:3], swapped)), {}, expert_arrays())
    assert {(r.first.call, r.second.call, r.tensor) for r in report.races} == {
        ("histogram", "sum", "count")
    }


def test_a_load_between_waits_is_ordered_only_by_the_waits_before_it() -> None:
    """`use` reads its target from `cnt` before it waits for the task that writes it, but late: an
    unrelated wait comes first. The value is right; the order is luck."""
    p = et.Program("late")
    src = p.input("src", (1,), et.i32)
    cnt = p.scratch("cnt", (1,), et.i32, bound=(0, 9))
    outs = [p.output(name, (1,), et.i32) for name in ("q", "y")]
    p.call(copy, name="make", grid=(1,), reads=lambda i: src[:], writes=lambda i: cnt[:])
    p.call(copy, name="idle", grid=(1,), reads=lambda i: src[:], writes=lambda i: outs[0][:])
    p.call(copy, name="use", grid=(1,), reads=lambda i: src[:], writes=lambda i: outs[1][:])
    events = (event("A", 1, 1), event("Q", 1, 1), event("E", 1, load("cnt", (0,))))

    def go(*names: str) -> Report:
        calls = (call_plan("make", notifies=[notify("A", 0)]),
                 call_plan("idle", notifies=[notify("Q", 0)]),
                 call_plan("use", [wait(name, 0) for name in names]))
        arrays = {name: np.zeros(1, np.int32) for name in ("src", "q", "y")}
        plan = Plan(p.build(), events, calls, (), (), Const(0))
        return run(plan, {}, arrays, hold=Task("idle", (0,)))

    assert go("Q", "A", "E").ok
    report = go("Q", "E", "A")
    assert not report.uninitialised
    (race,) = report.races
    assert (race.first.call, race.second.call, race.tensor) == ("make", "use", "cnt")


def test_a_missing_update_deadlocks_the_experts_that_have_tokens() -> None:
    report = run(experts_plan(update=False), {}, expert_arrays())
    assert report.deadlock is not None
    stuck = {s.task: s.cell for s in report.deadlock.stuck}
    assert (stuck[Task("work", (0, 0))].expected, stuck[Task("work", (0, 0))].seen) == (3, 0)
    assert Task("sum", (1,)) not in stuck


def test_debug_compares_every_awaited_cell_with_its_count() -> None:
    plan = experts_plan()
    twice = replace(plan.calls[2], notifies=plan.calls[2].notifies * 2)
    plan = replace(plan, calls=(*plan.calls[:2], twice, plan.calls[3]))
    with pytest.raises(CountMismatch, match=r"D\[0\] expects 3 and has 6"):
        run(plan, {}, expert_arrays(), debug=True)


def test_a_plan_that_does_not_fit_its_program_is_an_error() -> None:
    plan = experts_plan()
    with pytest.raises(BadPlan, match="no entry for call 'sum'"):
        run(replace(plan, calls=plan.calls[:3]), {}, expert_arrays())
    open_count = EventTensor("P", (Const(1),), None)
    with pytest.raises(BadPlan, match="'P' has no count"):
        run(replace(plan, events=(*plan.events[:1], open_count, *plan.events[2:])), {},
            expert_arrays())
