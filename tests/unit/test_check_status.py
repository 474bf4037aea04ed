"""What a report says of a program as a whole: its status, all problems in one error, and facts that
no data can satisfy."""

from __future__ import annotations

import pytest

import eventtensor as et
from eventtensor.analysis.check_report import Kind
from eventtensor.errors import ContradictoryFacts, UnboundedIndex, UncoveredRead

F, I = et.f32, et.i32  # noqa: E741


@et.task
def copy(x, o):
    o[:] = x


def picked(p: et.Program, index, size=8):
    """out[i] = x[index[i]]"""
    x, o = p.input("x", (size,), F), p.output("o", (8,), F)
    p.call(copy, name="pick", grid=(8,), reads=lambda i: x[index[i]], writes=lambda i: o[i])
    return p


# ---- status --------------------------------------------------------------------------------


def test_a_program_without_run_time_data_is_proved_for_every_run():
    p = et.Program("p")
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(copy, grid=(8,), reads=lambda i: x[i], writes=lambda i: o[i])
    report = et.check(p)
    assert (report.ok, report.status, report.obligations) == (True, "proved", ())


def test_a_program_that_takes_an_index_from_data_is_conditional_on_its_bound():
    p = et.Program("p")
    report = et.check(picked(p, p.input("index", (8,), I, bound=7)))
    assert (report.ok, report.status) == (True, "conditional")
    (owed,) = report.obligations
    assert owed.what == "0 <= index[..] <= 7"
    assert owed.place.startswith("test_check_status.py:") and owed.hint
    assert "conditional" in et.explain(p)


# ---- all problems in one error ---------------------------------------------------------------


def many(p: et.Program) -> et.Program:
    """A wait whose map reads data (unproved), then a read without a wait (refuted)."""
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F)
    t, q = p.scratch("t", (8,), F), p.output("q", (8,), F)
    a, e = p.input("a", (8,), I, bound=7), p.events("E", (8,), count=1)
    p.call(copy, name="one", grid=(8,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: e[i])
    p.call(copy, name="two", grid=(8,), reads=lambda i: s[i], writes=lambda i: o[i],
           waits=lambda i: e[a[i]])
    p.call(copy, name="three", grid=(8,), reads=lambda i: x[i], writes=lambda i: t[i])
    p.call(copy, name="four", grid=(8,), reads=lambda i: t[i], writes=lambda i: q[i], waits=())
    return p


def test_the_error_of_compile_holds_all_problems_the_cause_first():
    report = et.check(many(et.Program("p")))
    assert [q.kind for q in report.problems] == [Kind.uncovered_read, Kind.unproved]
    with pytest.raises(UncoveredRead) as caught:
        et.compile(many(et.Program("p")), target="interp")
    first, rest = str(caught.value).split("1 more problem:")
    assert first.startswith("ET201: four(i=0) reads t[0]") and "hint:" in first
    (line,) = rest.strip().split("\n")
    assert line.startswith("ET210 unproved: cannot show that 'one' comes before 'two'")
    assert "test_check_status.py:" in line and len(caught.value.others) == 1


def test_an_index_without_a_bound_stands_before_what_else_is_wrong():
    p = et.Program("p")
    index = p.input("index", (8,), I)
    picked(p, index)
    y, q = p.input("y", (4,), F), p.output("q", (8,), F)
    p.call(copy, name="late", grid=(8,), reads=lambda i: y[i], writes=lambda i: q[i])
    assert [k.kind for k in et.check(p).problems] == [Kind.unbounded_index, Kind.out_of_range]
    with pytest.raises(UnboundedIndex, match="ET209") as caught:
        et.compile(p, target="interp")
    assert "late" in caught.value.others[0]


def test_kinds_are_listed_causes_before_consequences():
    order = list(Kind)
    assert order.index(Kind.unbounded_index) < order.index(Kind.write_write)
    assert order.index(Kind.count_high) < order.index(Kind.uncovered_read)
    assert order[0] is Kind.contradiction and order[-1] is Kind.unproved


# ---- contradictions --------------------------------------------------------------------------

N = et.dim("n", max=64)


def empty_bound(p):
    return p.input("index", (8,), I, bound=(N, N - 1))


def negative_bytes(p):
    return p.input("index", (8,), et.u8, bound=(-4, -1))


def too_many_distinct(p):
    return p.input("index", (N,), I, bound=(0, N - 2), distinct=True)


def too_many_pairs(p):
    return p.input("index", (N, N + 4), I, bound=(0, 3), distinct=True)


def beyond_the_bound(p):
    index = p.input("index", (8,), I, bound=7)
    p.fact(lambda e: index[e] >= 8, over=(8,))
    return index


def less_than_each_other(p):
    index, other = p.input("index", (8,), I, bound=7), p.input("other", (8,), I, bound=9)
    p.fact(lambda e: (index[e] < other[e], other[e] < index[e]), over=(8,))
    return index


def falling_and_monotone(p):
    index = p.input("index", (8,), I, bound=7, monotone=True)
    p.fact(lambda: (index[0] >= 5, index[7] <= 3))
    return index


def rising_beyond_the_bound(p):
    index = p.input("index", (8,), I, bound=7)
    p.fact(lambda e: et.equal(index[e], e + 1), over=(8,))
    return index


def two_facts(p):
    index = p.input("index", (8,), I, bound=7)
    p.fact(lambda e: index[e] <= 2, over=(8,))
    p.fact(lambda: index[3] >= 3)
    return index


def a_dim(p):
    p.fact(lambda: N <= 0)
    return p.input("index", (8,), I, bound=7)


CONTRADICTIONS = [empty_bound, negative_bytes, too_many_distinct,
                  too_many_pairs, beyond_the_bound, less_than_each_other, falling_and_monotone,
                  rising_beyond_the_bound, two_facts, a_dim]


@pytest.mark.parametrize("declare", CONTRADICTIONS)
def test_facts_that_no_data_satisfies_are_refused(declare):
    p = et.Program("p")
    index = declare(p)
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    k = (0, 0) if declare is too_many_pairs else 0
    p.call(copy, name="pick", grid=(N,), reads=lambda i: x[index[k]], writes=lambda i: o[i])
    report = et.check(p)
    problem = report.problems[0]
    assert report.status == "refuted" and problem.kind is Kind.contradiction, str(report)
    assert problem.code == "ET215" and problem.witness is not None
    assert problem.place.startswith("test_check_status.py:") and problem.hint
    with pytest.raises(ContradictoryFacts):
        et.compile(p, target="interp")


def test_a_contradiction_is_shown_at_the_smallest_dims():
    p = et.Program("p")
    o = p.output("o", (N,), F)
    x, index = p.input("x", (64,), F), empty_bound(p)
    p.call(copy, grid=(N,), reads=lambda i: x[index[0]], writes=lambda i: o[i])
    assert dict(et.check(p).problems[0].witness.dims) == {"n": 1}


@pytest.mark.parametrize("facts", ["exact", "empty", "by data", "at some dims"])
def test_facts_that_data_can_satisfy_are_taken(facts):
    p = et.Program("p")
    empty = et.dim("m", min=0, max=9)
    if facts == "exact":
        index = p.input("index", (8,), I, bound=7, distinct=True, monotone=True)
        p.fact(lambda e: et.equal(index[e], e), over=(8,))
    elif facts == "empty":  # a tensor without elements satisfies any bound
        index = p.input("index", (8,), I, bound=7)
        p.input("none", (empty,), I, bound=(0, empty - 1), distinct=True)
    elif facts == "at some dims":  # nobody launches with n = 1 or n = 2, or n > 40
        index = p.input("index", (8,), I, bound=7)
        p.input("few", (N,), I, bound=(0, 39), distinct=True)
        p.input("some", (8,), I, bound=(0, N - 3))
        p.fact(lambda: N <= 50)
    else:
        index, size = p.input("index", (8,), I, bound=7), p.input("size", (8,), I, bound=8)
        p.fact(lambda k: index[k] >= 9, over=(size[0],))
    assert et.check(picked(p, index)).status == "conditional"
