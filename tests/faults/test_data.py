"""Faults in programs whose edges run-time data decides: what cannot be proved is not called proved,
and what only the data can break is an obligation that debug checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from eventtensor.analysis.check import verify
from eventtensor.analysis.derive import Derived
from eventtensor.compiler import State
from eventtensor.errors import EventTensorError
from eventtensor.interp import Order
from eventtensor.ir.walk import loads_of
from tests.support.backends import Arrays, index_data, passes, plan_with, run_interp
from tests.support.corpus import indexed
from tests.support.judge import Fault, faults_of
from tests.support.mutate import Mutant, mutants
from tests.support.small_moe import routed, small_moe, without_facts
from tests.support.world import World

SIZES = (4, 9)


@cache
def moe() -> State:
    state = passes(small_moe())
    assert state.report is not None and state.report.ok and state.derived is not None
    return state


@cache
def routings() -> tuple[tuple[dict[str, int], Arrays, Arrays], ...]:
    program = moe().program
    made = []
    for n in SIZES:
        arrays = routed(program, n, n)
        made.append(({"n": n}, arrays, index_data(program, {"n": n}, arrays)))
    return tuple(made)


def truth(derived: Derived) -> set[Fault]:
    found = set()
    for dims, _, data in routings():
        found |= faults_of(World(moe().program, derived, dims, data))
    return found


def all_mutants(derived: Derived) -> Iterator[Mutant]:
    yield from mutants(moe().program, derived)
    for call, waits in derived.headers.items():
        for k, w in enumerate(waits):
            rest = {**derived.headers, call: waits[:k] + waits[k + 1 :]}
            yield Mutant(f"{call}: drop header wait {w.event}", replace(derived, headers=rest))
    for call, waits in derived.waits.items():
        turned = {**derived.waits, call: waits[::-1]}
        if len(waits) > 1:
            yield Mutant(f"{call}: waits in reverse", replace(derived, waits=turned))


def caught_in_debug(derived: Derived) -> bool:
    """Some run in debug raises, or its report is bad."""
    plan = plan_with(moe(), derived)
    for dims, arrays, _ in routings():
        try:
            if not run_interp(plan, dims, arrays, Order.random, 1)[1].ok:
                return True
        except EventTensorError:
            return True
    return False


def run_time_counts() -> set[str]:
    """Events whose counts, or notify maps, run-time data decides."""
    return {e.name for e in moe().program.events if e.count is not None and loads_of(e.count)}


def test_no_faulty_mutant_of_the_mixture_of_experts_is_proved() -> None:
    derived = moe().derived
    assert derived is not None and not truth(derived)
    wrong, faulty = [], 0
    for m in all_mutants(derived):
        found = truth(m.derived)
        faulty += bool(found)
        report = verify(moe().program, m.derived)
        if not found or not report.ok:
            continue
        owed = {f.where for f in found if f.kind.startswith("count")}
        stated = all(any(e in o.what for o in report.obligations) for e in owed)
        if not (owed and owed <= run_time_counts() and stated and caught_in_debug(m.derived)):
            wrong.append(f"{m.name}: proved, but {sorted(map(str, found))[:2]}")
    assert not wrong, "\n".join(wrong)
    assert faulty >= 50


def test_order_faults_of_the_mixture_of_experts_name_the_tasks() -> None:
    derived = moe().derived
    assert derived is not None
    for call, before in (("gate_up", "dispatch"), ("down", "gate_up"), ("combine", "down")):
        lost = replace(derived, waits={**derived.waits, call: ()})
        report = verify(moe().program, lost)
        pairs = {tuple(t.call for t in p.witness.tasks) for p in report.problems
                 if str(p.kind) == "uncovered-read" and p.witness}
        assert report.status == "refuted" and (before, call) in pairs


FACTS = dict(without_facts(small_moe()))


@pytest.mark.parametrize("fact", FACTS)
def test_the_mixture_of_experts_is_not_proved_without_each_of_its_facts(fact: str) -> None:
    report = passes(FACTS[fact]).report
    assert report is not None and not report.ok
    if fact.startswith("bound"):
        assert "unbounded-index" in {str(p.kind) for p in report.problems}


def test_an_index_without_a_bound_is_refused() -> None:
    report = passes(indexed(bound=False)).report
    assert report is not None and report.status == "refuted"
    assert "unbounded-index" in {str(p.kind) for p in report.problems}


def test_an_index_whose_bound_is_too_wide_is_out_of_range() -> None:
    report = passes(indexed(offset=1)).report
    assert report is not None
    assert "out-of-range" in {str(p.kind) for p in report.problems}


def test_writes_through_an_index_need_it_to_be_distinct() -> None:
    right, wrong = passes(indexed()).report, passes(indexed(distinct=False)).report
    assert right is not None and right.ok, str(right)
    assert wrong is not None
    assert "write-write" in {str(p.kind) for p in wrong.problems}
