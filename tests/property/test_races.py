"""The races that the interpreter finds are those that a look at every pair finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventtensor.interp.clocks import Clocks
from eventtensor.interp.races import Conflicts
from eventtensor.interp.ready_queue import Order, ReadyQueue
from eventtensor.interp.run import Machine
from eventtensor.interp.shadow_memory import make_memory
from eventtensor.interp.tasks import Execution
from tests.support.backends import make_arrays, passes
from tests.support.blocks import FAMILIES, programs
from tests.support.draw import Drawn
from tests.support.race_oracle import all_races, assert_same_races, random_trace


@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_races_of_random_traces(first: int) -> None:
    for seed in range(first, first + 100):
        trace = random_trace(seed)
        clocks = Clocks(trace)
        assert_same_races(trace, clocks, Conflicts(trace, clocks).races())


def test_random_traces_have_races_of_every_kind_and_none() -> None:
    found = [all_races(t, Clocks(t)) for t in map(random_trace, range(300))]
    kinds = {(kind, reversed) for races in found for kind, *_, reversed in races}
    assert len(kinds) == 6 and set() in found


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_races_of_random_programs_whose_events_lost_their_order(
    family: str, data: st.DataObject
) -> None:
    drawn: Drawn = data.draw(programs(family))
    plan = passes(drawn.program).plan
    assert plan is not None
    names = [e.name for e in plan.events]
    relaxed = data.draw(st.sets(st.sampled_from(names))) if names else set()
    dims = drawn.dims[0]
    memory = make_memory(plan.program, dims, make_arrays(drawn.program, dims, 0, drawn.given(dims)))
    machine = Machine(plan, dict(dims), Execution(memory), ReadyQueue(Order.random, 1, None))
    machine.run()
    clocks = Clocks(machine.log, relaxed)
    assert_same_races(machine.log, clocks, Conflicts(machine.log, clocks).races())
