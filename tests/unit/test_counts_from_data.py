"""Counts that run-time data decides: proved, conditional on an obligation, or refuted."""

from __future__ import annotations

import pytest

import eventtensor as et
from eventtensor.analysis.check_report import Kind

F, I = et.f32, et.i32  # noqa: E741
N = et.dim("n", max=64)


@et.task
def copy(x, o):
    o[:] = x


def grouped(count, facts=lambda p, counts, starts: None, tasks=8, cells=8, distinct=False):
    """Tasks notify the cell that data names; one task waits for each cell."""
    p = et.Program("p")
    index = p.input("index", (tasks,), I, bound=cells - 1, distinct=distinct)
    counts = p.input("counts", (cells,), I, bound=tasks)
    starts = p.input("starts", (cells + 1,), I, bound=tasks)
    x, s = p.input("x", (tasks,), F), p.scratch("s", (tasks,), F)
    o = p.output("o", (cells,), F)
    facts(p, counts, starts)
    ready = p.events("ready", (cells,), count=count(counts, starts))
    p.call(copy, name="give", grid=(tasks,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: ready[index[i]])
    p.call(copy, name="take", grid=(cells,), reads=lambda e: x[0], writes=lambda e: o[e],
           waits=lambda e: ready[e])
    return p


def prefix_sums(p, counts, starts):
    p.fact(lambda e: et.equal(counts[e], starts[e + 1] - starts[e]), over=(8,))
    p.fact(lambda: (et.equal(starts[0], 0), et.equal(starts[8], 8)))


def written_out(p, counts, starts):
    p.fact(lambda: et.equal(sum(counts[e] for e in range(8)), 8))


def owed(p):
    report = et.check(p)
    assert report.status == "conditional", str(report)
    return [q for q in report.obligations if "ready" in q.what]


@pytest.mark.parametrize("count", [
    lambda counts, _: lambda e: counts[e],
    lambda counts, _: lambda e: counts[e] + 1,
    lambda counts, _: lambda e: et.min(counts[e], 1),
])
def test_a_count_that_data_may_break_is_an_obligation_in_words(count):
    (said,) = owed(grouped(count))
    assert "is the number of notifies of ready[c0], for each cell that 'take' waits" in said.what
    assert "the tasks (i) of 'give' where index[i] = c0" in said.what
    assert said.place.startswith("test_counts_from_data.py:") and "ready" in said.hint


@pytest.mark.parametrize("facts", [prefix_sums, written_out])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_facts_that_tie_counts_to_the_notifies_refute_one_more_or_less(facts, more):
    p = grouped(lambda counts, _: lambda e: counts[e] + more, facts)
    if more == 0:
        assert len(owed(p)) == 1
        return
    report = et.check(p)
    problem = report.problems[0]
    assert report.status == "refuted" and len(report.problems) == 1, str(report)
    assert problem.kind is (Kind.count_high if more > 0 else Kind.count_low)
    assert "add up to" in problem.message and "8 notifies in all" in problem.message
    assert problem.witness.event == "ready" and problem.witness.tasks[0].call == "take"


def test_the_difference_of_prefix_sums_is_added_up_too():
    def count(_, starts):
        return lambda e: starts[e + 1] - starts[e] + 1

    assert et.check(grouped(count, prefix_sums)).problems[0].kind is Kind.count_high
    assert len(owed(grouped(lambda _, starts: lambda e: starts[e + 1] - starts[e],
                            prefix_sums))) == 1


@pytest.mark.parametrize("count, kind", [(0, Kind.count_low), (2, Kind.count_high), (1, None)])
def test_a_constant_must_add_up_to_the_number_of_notifies(count, kind):
    p = grouped(lambda counts, _: count)
    assert [q.kind for q in et.check(p).problems] == ([kind] if kind else [])
    assert kind or len(owed(p)) == 1


def test_a_bound_on_the_counts_may_be_too_little_for_all_notifies():
    """At most one for each of 4 cells, and 8 notifies."""
    p = grouped(lambda counts, _: lambda e: et.min(counts[e], 1), tasks=8, cells=4)
    assert [q.kind for q in et.check(p).problems] == [Kind.count_low]


def test_a_total_is_compared_at_all_dims():
    p = grouped(lambda counts, _: 1, tasks=N, cells=8)
    problem = et.check(p).problems[0]
    assert problem.kind is Kind.count_high and dict(problem.witness.dims) == {"n": 1}


def test_counts_that_change_from_iteration_to_iteration_are_not_added_up():
    """Each iteration reads counts of its own; all of them together are more than 8."""
    p = et.Program("p")
    index, raw = p.input("index", (8,), I, bound=7), p.input("raw", (2, 8), I)
    counts = p.scratch("counts", (8,), I, bound=16)
    x, s, o = p.input("x", (8,), F), p.scratch("s", (2, 8), F), p.output("o", (2, 8), F)
    written_out(p, counts, None)
    made = p.events("made", (2,), count=1)
    ready = p.events("ready", (8,), count=lambda e: counts[e])
    with p.loop("l", 2) as at:
        p.call(copy, name="count", grid=(), reads=lambda: raw[at, :], writes=lambda: counts[:],
               notifies=lambda: made[at])
        p.call(copy, name="give", grid=(8,), reads=lambda i: x[i], writes=lambda i: s[at, i],
               notifies=lambda i: ready[index[i]])
        p.call(copy, name="take", grid=(8,), reads=lambda e: x[0], writes=lambda e: o[at, e],
               waits=lambda e: (made[at], ready[e]))
    assert not any("add up to" in q.message for q in et.check(p).problems)


def test_a_permutation_gives_every_cell_one_notify():
    assert owed(grouped(lambda counts, _: 1, distinct=True)) == []
    assert owed(grouped(lambda counts, _: 1, tasks=N, cells=N, distinct=True)) == []
    assert len(owed(grouped(lambda counts, _: 1, distinct=False))) == 1


# ---- what a cell gets is an expression of data ------------------------------------------------


def ragged(count, equal=False):
    """Row e has t[e] tiles, and the sum of row e waits for them."""
    p = et.Program("p")
    t, u = p.input("t", (4,), I, bound=8), p.input("u", (4,), I, bound=8)
    if equal:
        p.fact(lambda e: et.equal(t[e], u[e]), over=(4,))
    x, s, o = p.input("x", (4, 8), F), p.scratch("s", (4, 8), F), p.output("o", (4,), F)
    ready = p.events("ready", (4,), count=count(t, u))
    p.call(copy, name="give", grid=(4, lambda e: t[e]), reads=lambda e, j: x[e, j],
           writes=lambda e, j: s[e, j], notifies=lambda e, j: ready[e])
    p.call(copy, name="take", grid=(4,), reads=lambda e: x[e, 0], writes=lambda e: o[e],
           waits=lambda e: ready[e])
    return p


@pytest.mark.parametrize("count, equal, stated", [
    (lambda t, u: lambda e: t[e], False, 0),
    (lambda t, u: lambda e: u[e], True, 0),
    (lambda t, u: lambda e: u[e], False, 1),
    (lambda t, u: lambda e: et.min(t[e], 1), False, 1),
])
def test_a_count_by_form_is_owed_unless_facts_imply_it(count, equal, stated):
    found = owed(ragged(count, equal))
    assert len(found) == stated
    assert all("= t[c0] for each cell ready[c0] that 'take' waits for" in f.what for f in found)


@pytest.mark.parametrize("count, kind", [
    (lambda t, u: lambda e: t[e] + 1, Kind.count_high),
    (lambda t, u: lambda e: t[e] + u[e] + 1, Kind.count_high),
    (lambda t, u: lambda e: et.min(t[e], u[e]) - 1, Kind.count_low),
])
def test_a_count_by_form_that_no_data_satisfies_is_refuted(count, kind):
    (problem,) = et.check(ragged(count)).problems
    assert problem.kind is kind and problem.witness.cell == (0,)
