"""Running plans: values, legal orders, clocks and what a report finds, on hand-made plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import DeadlockFound, OutOfRange, OverNotified, RaceFound
from eventtensor.interp import Order, RaceKind, Report, Task, run, run_reference
from eventtensor.ir.expr import Const, ExprLike, Var, wrap
from eventtensor.ir.plan import (
    CallPlan,
    Nest,
    NestAxis,
    Notify,
    Plan,
    Policy,
    Schedule,
    ScheduleKind,
    Wait,
)
from eventtensor.ir.program import EventTensor

ORDERS = [(o, s) for o in Order for s in (0, 1, 2)]
STATIC = Schedule(ScheduleKind.static, Policy.round_robin, "test", Const(0))
i, j, k = Var("i"), Var("j"), Var("k")

Edge = tuple[str, Sequence[ExprLike]] | tuple[str, Sequence[ExprLike], Sequence[NestAxis]]


def nest(edge: Edge) -> tuple[Nest, ...]:
    axes = edge[2] if len(edge) == 3 else ()
    return (Nest(tuple(axes), (), tuple(wrap(e) for e in edge[1])),)


def plan_of(
    p: et.Program,
    events: Mapping[str, tuple[Sequence[ExprLike], ExprLike]],
    waits: Mapping[str, Sequence[Edge]],
    notifies: Mapping[str, Sequence[Edge]],
) -> Plan:
    program = p.build()
    made = tuple(
        EventTensor(n, tuple(wrap(s) for s in shape), wrap(count))
        for n, (shape, count) in events.items()
    )
    calls = tuple(
        CallPlan(
            c.call.name,
            (),
            tuple(Wait(e[0], nest(e)) for e in waits.get(c.call.name, ())),
            tuple(Notify(e[0], nest(e)) for e in notifies.get(c.call.name, ())),
            STATIC,
        )
        for c in program.calls
    )
    return Plan(program, made, calls, (), (), Const(0))


@et.task
def partial_sum(x: Any, out: Any) -> None:
    out[:] = x.sum(axis=1)


@et.task
def copy(x: Any, out: Any) -> None:
    out[:] = x


@et.task
def add_one(x: Any, out: Any) -> None:
    out[:] = x + 1.0


@et.task
def accumulate(x: Any, acc: Any) -> None:
    acc[:] += x


n = et.dim("n", max=4096)


def row_sum(count: ExprLike = 4, wait: bool = True) -> Plan:
    p = et.Program("row_sum")
    a = p.input("a", (n, 128), et.f32)
    b = p.scratch("b", (n, 4), et.f32)
    c = p.output("c", (n,), et.f32)
    p.call(partial_sum, name="part", grid=(n.tiles(32), 4),
           reads=lambda i, j: a[i * 32 : i * 32 + 32, j * 32 : j * 32 + 32],
           writes=lambda i, j: b[i * 32 : i * 32 + 32, j])
    p.call(partial_sum, name="final", grid=(n.tiles(32),),
           reads=lambda i: b[i * 32 : i * 32 + 32, :],
           writes=lambda i: c[i * 32 : i * 32 + 32])
    waits = {"final": [("E", (i,))]} if wait else {}
    return plan_of(p, {"E": ((n.tiles(32),), count)}, waits, {"part": [("E", (i,))]})


def run_rows(plan: Plan, size: int = 97, **options: Any) -> tuple[Report, np.ndarray, np.ndarray]:
    a = np.random.default_rng(size).normal(size=(size, 128)).astype(np.float32)
    c = np.zeros(size, np.float32)
    return run(plan, {"n": size}, {"a": a, "c": c}, **options), a, c


# ---- values and orders ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 31, 32, 33, 97])
@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_row_sum_is_right_and_clean_in_every_order(order: Order, seed: int, size: int) -> None:
    report, a, c = run_rows(row_sum(), size, order=order, seed=seed, debug=True)
    assert report.ok and report.waited_unneeded == 0
    np.testing.assert_allclose(c, a.astype(float).sum(axis=1), rtol=0, atol=1e-4)
    want = np.zeros_like(c)
    run_reference(row_sum().program, {"n": size}, {"a": a, "c": want})
    np.testing.assert_array_equal(c, want)
    assert report.cells == {("E", (t,)): 4 for t in range(-(-size // 32))}


def test_two_seeds_give_two_orders_and_one_seed_gives_one() -> None:
    orders = [run_rows(row_sum(), seed=s)[0].order for s in (1, 2, 1)]
    assert orders[0] != orders[1] and orders[0] == orders[2]
    assert sorted(orders[0]) == sorted(orders[1])


def test_a_row_finishes_before_another_has_begun() -> None:
    """The order is by events: with row 0 held back, every other final sum comes first."""
    hold = lambda task: task.call == "part" and task.coords[0] == 0
    order = run_rows(row_sum(), hold=hold)[0].order
    finals = [order.index(Task("final", (r,))) for r in (1, 2, 3)]
    assert max(finals) < order.index(Task("part", (0, 0)))


def test_one_task_can_be_held_by_name() -> None:
    order = run_rows(row_sum(), hold=Task("part", (2, 1)))[0].order
    assert order[-2:] == (Task("part", (2, 1)), Task("final", (2,)))


def test_program_order_is_lexicographic() -> None:
    order = run_rows(row_sum(), order=Order.program)[0].order
    assert order[:4] == tuple(Task("part", (0, c)) for c in range(4))
    # A task is ready when its events are; in program order the later grid still comes last.
    assert order[-1] == Task("final", (3,))


def chain_and_bystanders() -> Plan:
    """root -> 3 leaves through one event, and a grid that nobody waits for."""
    p = et.Program("fan")
    x = p.input("x", (8,), et.f32)
    r = p.scratch("r", (1,), et.f32)
    y = p.output("y", (3,), et.f32)
    z = p.output("z", (4,), et.f32)
    p.call(copy, name="free", grid=(4,), reads=lambda i: x[i : i + 1],
           writes=lambda i: z[i : i + 1])
    p.call(copy, name="root", grid=(1,), reads=lambda i: x[0:1], writes=lambda i: r[0:1])
    p.call(copy, name="leaf", grid=(3,), reads=lambda i: r[0:1], writes=lambda i: y[i : i + 1])
    return plan_of(p, {"E": ((1,), 1)}, {"leaf": [("E", (0,))]}, {"root": [("E", (0,))]})


def test_the_adversary_delays_the_task_that_most_others_wait_for() -> None:
    arrays = {"x": np.arange(8, dtype=np.float32), "y": np.zeros(3, np.float32),
              "z": np.zeros(4, np.float32)}
    report = run(chain_and_bystanders(), {}, arrays, order=Order.adversarial)
    assert [t.call for t in report.order] == ["free"] * 4 + ["root"] + ["leaf"] * 3
    assert report.order != run(chain_and_bystanders(), {}, arrays, order=Order.program).order


# ---- clocks --------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_a_dropped_wait_is_a_race_in_every_order(order: Order, seed: int) -> None:
    report, a, c = run_rows(row_sum(wait=False), order=order, seed=seed)
    race = report.races[0]
    assert race.kind is RaceKind.uncovered_read
    assert (race.first, race.second) == (Task("part", (0, 0)), Task("final", (0,)))
    assert (race.tensor, race.index) == ("b", (0, 0))
    assert len(report.races) == 16
    if order is Order.program:
        np.testing.assert_allclose(c, a.astype(float).sum(axis=1), rtol=0, atol=1e-4)
        assert not report.uninitialised
    with pytest.raises(RaceFound, match=r"final\(0\) reads b\[0, 0\], written by part\(0, 0\)"):
        report.raise_if_bad()


@pytest.mark.parametrize("seed", range(3))
def test_a_relaxed_event_counts_but_orders_nothing(seed: int) -> None:
    report, a, c = run_rows(row_sum(), seed=seed, relaxed=["E"])
    np.testing.assert_allclose(c, a.astype(float).sum(axis=1), rtol=0, atol=1e-4)
    assert len(report.races) == 16 and not report.uninitialised


@pytest.mark.parametrize("seed", range(4))
def test_a_count_too_low_is_over_notified_and_orders_nothing(seed: int) -> None:
    report, _, _ = run_rows(row_sum(count=3), seed=seed)
    assert {(s.index, s.expected, s.seen) for s in report.over_notified} == {
        ((t,), 3, 4) for t in range(4)
    }
    assert len(report.races) == 16
    with pytest.raises(OverNotified, match=r"E\[0\] expects 3 and has 4"):
        report.raise_if_bad()


def test_a_count_too_high_is_a_deadlock_that_names_task_and_cell() -> None:
    report, _, _ = run_rows(row_sum(count=5))
    assert report.deadlock is not None
    stuck = report.deadlock.stuck
    assert [s.task for s in stuck] == [Task("final", (t,)) for t in range(4)]
    assert (stuck[0].cell.event, stuck[0].cell.expected, stuck[0].cell.seen) == ("E", 5, 4)
    assert not report.races
    with pytest.raises(DeadlockFound, match=r"final\(0\) waits: E\[0\] expects 5 and has 4"):
        report.raise_if_bad()


def test_a_cycle_is_a_deadlock() -> None:
    plan = chain_and_bystanders()
    calls = [
        replace(c, waits=(Wait("F", nest(("F", (0,)))),)) if c.call == "root" else
        replace(c, notifies=(Notify("F", nest(("F", (0,)))),)) if c.call == "leaf" else c
        for c in plan.calls
    ]
    event = EventTensor("F", (Const(1),), Const(3))
    plan = replace(plan, calls=tuple(calls), events=(*plan.events, event))
    arrays = {"x": np.zeros(8, np.float32), "y": np.zeros(3, np.float32),
              "z": np.zeros(4, np.float32)}
    report = run(plan, {}, arrays)
    assert report.deadlock is not None
    assert [s.task.call for s in report.deadlock.stuck] == ["root", "leaf", "leaf", "leaf"]


def test_order_is_transitive_through_events() -> None:
    """a -> b -> c by events orders a and c, which share nothing but a tensor."""
    report = run_three({"b": [("E", (0,))], "c": [("F", (0,))]})
    assert report.ok


def test_without_the_middle_edge_the_ends_race() -> None:
    report = run_three({"b": [("E", (0,))]})
    kinds = {(r.kind, r.first.call, r.second.call, r.tensor) for r in report.races}
    assert kinds == {
        (RaceKind.uncovered_read, "b", "c", "t"),
        (RaceKind.write_write, "a", "c", "s"),
        (RaceKind.write_after_read, "b", "c", "s"),
    }


def run_three(waits: Mapping[str, Sequence[Edge]]) -> Report:
    """a writes s; b reads s, writes t; c reads t, writes s again."""
    p = et.Program("three")
    x = p.input("x", (4,), et.f32)
    s = p.scratch("s", (4,), et.f32)
    t = p.output("t", (4,), et.f32)
    p.call(add_one, name="a", grid=(1,), reads=lambda i: x[:], writes=lambda i: s[:])
    p.call(add_one, name="b", grid=(1,), reads=lambda i: s[:], writes=lambda i: t[:])
    p.call(add_one, name="c", grid=(1,), reads=lambda i: t[:], writes=lambda i: s[:])
    plan = plan_of(p, {"E": ((1,), 1), "F": ((1,), 1)}, waits,
                   {"a": [("E", (0,))], "b": [("F", (0,))]})
    return run(plan, {}, {"x": np.zeros(4, np.float32), "t": np.zeros(4, np.float32)})


def test_a_wait_on_some_of_the_notifies_keeps_what_they_have_in_common() -> None:
    """A chain w0 -> w1 -> w2 notifies E three times, and two notifies satisfy a wait: whichever two
    they are, w0 came before one of them; w2 need not have ended."""
    p = et.Program("common")
    x = p.input("x", (3,), et.f32)
    s = p.state("s", (3,), et.f32)
    y = p.output("y", (3,), et.f32)
    p.call(copy, name="w", grid=(3,), reads=lambda i: x[i : i + 1], writes=lambda i: s[i : i + 1])
    p.call(copy, name="r", grid=(3,), reads=lambda i: s[i : i + 1], writes=lambda i: y[i : i + 1])
    before = (NestAxis("q", Const(0), i),)
    plan = plan_of(p, {"C": ((3,), 1), "E": ((1,), 2)},
                   {"w": [("C", (Var("q"),), before)], "r": [("E", (0,))]},
                   {"w": [("C", (i,)), ("E", (0,))]})
    report = run(plan, {}, {a: np.zeros(3, np.float32) for a in "xsy"})
    raced = {r.first.coords for r in report.races}
    assert (0,) not in raced and (2,) in raced
    assert report.over_notified


def test_waiting_for_more_than_the_regions_need_is_counted() -> None:
    plan = row_sum()
    every = (Nest((NestAxis("q", Const(0), n.tiles(32)),), (), (Var("q"),)),)
    calls = tuple(replace(c, waits=(Wait("E", every),)) if c.call == "final" else c
                  for c in plan.calls)
    report, _, _ = run_rows(replace(plan, calls=calls))
    assert report.ok and report.waited_unneeded == 4 * 3 * 4
    assert (Task("final", (0,)), Task("part", (1, 0))) in report.unneeded


# ---- loops and accumulation ------------------------------------------------------------------


def layers(ring: int, guard: bool) -> Plan:
    """x goes through scratch of `ring` slots, three layers of one tile each."""
    p = et.Program("layers")
    x = p.state("x", (4,), et.f32)
    s = p.scratch("s", (ring, 4), et.f32)
    with p.loop("l", 3) as loop:
        p.call(add_one, name="up", grid=(1,), reads=lambda i: x[:],
               writes=lambda i: s[loop % ring, :])
        p.call(add_one, name="down", grid=(1,), reads=lambda i: s[loop % ring, :],
               writes=lambda i: x[:])
    back = [("D", (Var("q"),), (NestAxis("q", Var("l") - 1, Var("l")),))]
    plan = plan_of(p, {"U": ((3,), 1), "D": ((3,), 1)},
                   {"down": [("U", (Var("l"),))], "up": back},
                   {"up": [("U", (Var("l"),))], "down": [("D", (Var("l"),))]})
    nests = (replace(nest(back[0])[0], guards=(Var("l") >= 1,)),) if guard else ()
    calls = tuple(replace(c, waits=(Wait("D", nests),)) if c.call == "up" else c
                  for c in plan.calls)
    return replace(plan, calls=calls)


@pytest.mark.parametrize(("order", "seed"), ORDERS)
@pytest.mark.parametrize("ring", [1, 2])
def test_loop_iterations_are_ordered_by_events_only(ring: int, order: Order, seed: int) -> None:
    x = np.zeros(4, np.float32)
    report = run(layers(ring, guard=True), {}, {"x": x}, order=order, seed=seed)
    assert report.ok and x.tolist() == [6.0] * 4
    loose = run(layers(ring, guard=False), {}, {"x": np.zeros(4, np.float32)},
                order=order, seed=seed)
    assert (RaceKind.uncovered_read, Task("down", (0, 0)), Task("up", (1, 0))) in {
        (r.kind, r.first, r.second) for r in loose.races
    }


def total(unordered: bool, chained: bool, backwards: bool = False) -> Plan:
    """Four tiles add into one output; a chain of events orders them by coordinate."""
    p = et.Program("total")
    x = p.input("x", (4, 8), et.f32)
    y = p.output("y", (8,), et.f32)
    p.call(accumulate, name="add", grid=(4,), reads=lambda i: x[i, :], accumulates=lambda i: y[:],
           unordered=unordered)
    step = 1 if backwards else -1
    axis = NestAxis("q", i + step, i + step + 1)
    guard = (Var("i") <= 2,) if backwards else (Var("i") >= 1,)
    plan = plan_of(p, {"E": ((4,), 1)}, {}, {"add": [("E", (i,))]})
    waits = (Wait("E", (Nest((axis,), guard, (Var("q"),)),)),) if chained else ()
    return replace(plan, calls=(replace(plan.calls[0], waits=waits),))


def ill_conditioned() -> np.ndarray:
    rng = np.random.default_rng(7)
    return (rng.normal(size=(4, 8)) * 10.0 ** rng.integers(-6, 6, (4, 8))).astype(np.float32)


@pytest.mark.parametrize("seed", range(4))
def test_ordered_accumulation_starts_from_zero_and_repeats(seed: int) -> None:
    x, y = ill_conditioned(), np.full(8, 99, np.float32)
    report = run(total(False, True), {}, {"x": x, "y": y}, seed=seed)
    assert report.ok
    want = np.zeros(8, np.float32)
    for row in x:
        want = want + row
    np.testing.assert_array_equal(y, want)


def test_accumulation_without_order_is_a_race_unless_it_is_declared() -> None:
    arrays = {"x": ill_conditioned(), "y": np.zeros(8, np.float32)}
    assert {r.kind for r in run(total(False, False), {}, arrays).races} == {RaceKind.write_write}
    assert run(total(True, False), {}, arrays).ok


def test_an_order_against_the_program_is_reported() -> None:
    arrays = {"x": ill_conditioned(), "y": np.zeros(8, np.float32)}
    report = run(total(False, True, backwards=True), {}, arrays)
    assert report.races and all(r.reversed for r in report.races)


def test_a_cell_outside_its_event_tensor_is_an_error() -> None:
    plan = row_sum()
    bad = (Notify("E", nest(("E", (i + 1,)))),)
    calls = tuple(replace(c, notifies=bad) if c.call == "part" else c for c in plan.calls)
    with pytest.raises(OutOfRange, match=r"part\(3, \d\) uses cell E\[4\]"):
        run_rows(replace(plan, calls=calls))
