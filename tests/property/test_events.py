"""What derive makes of known programs: golden cells and maps, rings, and how the interpreter sees
them. `python -m support.goldens` in tests/ writes the golden files anew."""

from __future__ import annotations

import pytest

import eventtensor as et
from eventtensor.analysis.derive import Derived
from eventtensor.interp import Order
from eventtensor.ir.expr import Const, Var, text
from tests.support import bases
from tests.support.backends import make_arrays, passes, run_interp
from tests.support.goldens import PROGRAMS, event_text_of, path_of


def derived_of(program: et.Program) -> Derived:
    state = passes(program)
    assert state.report is not None and state.report.ok, str(state.report)
    assert state.derived is not None
    return state.derived


@pytest.mark.parametrize("name", PROGRAMS)
def test_events_are_the_golden_ones(name: str) -> None:
    assert event_text_of(PROGRAMS[name]()) == path_of(name).read_text()


def test_row_sum_has_a_cell_for_each_row_of_tiles_and_counts_its_columns() -> None:
    d = derived_of(bases.row_sum(width=3))
    (event,) = d.events
    assert [text(s) for s in event.shape] == ["(n + 3)//4"] and event.count == Const(3)
    (notify,), (wait,) = d.notifies["part"], d.waits["final"]
    assert [n.index for n in notify.cells] == [(Var("i"),)] == [n.index for n in wait.cells]


@pytest.mark.parametrize("r", [1, 2, 3])
def test_a_ring_without_a_chain_gets_a_write_after_read_event_r_iterations_on(r: int) -> None:
    d = derived_of(bases.ring(r, chain=False, second=4))
    (wait,) = d.waits["up"]
    assert "war" in wait.reason and wait.event == d.notifies["down"][0].event
    (nest,) = wait.cells
    assert nest.index == (Var("l") - r, Var("i"))


@pytest.mark.parametrize("r", [2, 3])
def test_a_ring_with_a_chain_needs_no_event_for_its_reuse(r: int) -> None:
    d = derived_of(bases.ring(r, second=4))
    assert [w.reason for w in d.waits["up"]] == ["x (raw)"]


def test_a_ring_of_one_waits_for_its_reader() -> None:
    (wait,) = derived_of(bases.ring(1, second=4)).waits["up"]
    assert "b (war)" in wait.reason


@pytest.mark.parametrize("name", ["row_sum", "halo", "two_tiles", "cross", "triangle", "ring2"])
def test_no_task_waits_for_a_producer_it_does_not_need(name: str) -> None:
    state = passes(PROGRAMS[name]())
    assert state.plan is not None
    for n in (1, 5, 13, 21):
        dims = {d.name: {"n": n, "m": 7, "L": 4}[d.name] for d in state.program.dims}
        arrays = make_arrays(state.program, dims)
        _, report = run_interp(state.plan, dims, arrays, Order.random, 0)
        assert report.ok and report.waited_unneeded == 0


def test_two_seeds_give_two_orders_and_one_seed_gives_one() -> None:
    state = passes(bases.in_place())
    assert state.plan is not None
    dims = {"n": 40}
    arrays = make_arrays(state.program, dims)
    orders = [run_interp(state.plan, dims, arrays, Order.random, s)[1].order for s in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


@pytest.mark.parametrize("schedule", ["static", "ticket", "push", "auto"])
@pytest.mark.parametrize("make", [bases.row_sum, bases.halo, bases.triangle, bases.cross])
def test_a_plan_is_no_table_of_sizes(make: object, schedule: str) -> None:
    few, many = (passes(make(most=most), schedule).plan for most in (64, 10**6))  # type: ignore[operator]
    assert str(few) == str(many)
