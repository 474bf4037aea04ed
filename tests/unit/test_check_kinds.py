"""Every kind of finding, by the smallest program that has it, with its witness."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eventtensor as et
from eventtensor.analysis.check_report import Kind

F = et.f32


@et.task
def copy(x, o):
    o[:] = x


def pair(p: et.Program, count: int, waiting: bool = True) -> et.Program:
    """One grid fills s, the next reads it, behind event E if `waiting`."""
    n = et.dim("n", max=4096)
    x, s, o = p.input("x", (n,), F), p.scratch("s", (n,), F), p.output("o", (n,), F)
    e = p.events("E", (n,), count=count)
    p.call(copy, name="first", grid=(n,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: e[i])
    p.call(copy, name="second", grid=(n,), reads=lambda i: s[i], writes=lambda i: o[i],
           waits=(lambda i: e[i]) if waiting else ())
    return p


def uncovered(p):
    return pair(p, 1, waiting=False)


def high(p):
    return pair(p, 2)


def low(p):
    n = et.dim("n", max=4096)
    x, s, o = p.input("x", (n, 4), F), p.scratch("s", (n, 4), F), p.output("o", (n,), F)
    e = p.events("E", (n,), count=3)
    p.call(copy, name="first", grid=(n, 4), reads=lambda i, j: x[i, j],
           writes=lambda i, j: s[i, j], notifies=lambda i, j: e[i])
    p.call(copy, name="second", grid=(n,), reads=lambda i: s[i, 0], writes=lambda i: o[i],
           waits=lambda i: e[i])
    return p


def no_producer(p):
    s, o = p.scratch("s", (8,), F), p.output("o", (8,), F)
    p.call(copy, name="second", grid=(8,), reads=lambda i: s[i], writes=lambda i: o[i])
    return p


def out_of_range(p):
    n = et.dim("n", max=4096)
    x, o = p.input("x", (n,), F), p.output("o", (n,), F)
    p.call(copy, name="second", grid=(n,), reads=lambda i: x[i + 1], writes=lambda i: o[i])
    return p


def write_write(p):
    x, o = p.input("x", (8,), F), p.output("o", (4,), F)
    p.call(copy, name="second", grid=(8,), reads=lambda i: x[i], writes=lambda i: o[i // 2])
    return p


def write_after_read(p):
    n = et.dim("n", max=4096)
    x, s, o = p.input("x", (n,), F), p.state("s", (n,), F), p.output("o", (n,), F)
    p.call(copy, name="first", grid=(n,), reads=lambda i: s[i], writes=lambda i: o[i])
    p.call(copy, name="second", grid=(n,), reads=lambda i: x[i], writes=lambda i: s[i], waits=())
    return p


def cycle(p):
    x, o, q = p.input("x", (8,), F), p.output("o", (8,), F), p.output("q", (8,), F)
    e = p.events("E", (8,), count=1)
    p.call(copy, name="first", grid=(8,), reads=lambda i: x[i], writes=lambda i: o[i],
           waits=lambda i: e[i])
    p.call(copy, name="second", grid=(8,), reads=lambda i: x[i], writes=lambda i: q[i],
           notifies=lambda i: e[i])
    return p


def unbounded(p):
    x, t, o = p.input("x", (8,), F), p.input("t", (8,), et.i32), p.output("o", (8,), F)
    p.call(copy, name="second", grid=(8,), reads=lambda i: x[t[i]], writes=lambda i: o[i])
    return p


def unequal(p):
    @et.task
    def add(a, b, o):
        o[:] = a + b

    n, m = et.dim("n", max=64), et.dim("m", max=64)
    x, y, o = p.input("x", (n,), F), p.input("y", (m,), F), p.output("o", (n,), F)
    p.call(add, name="second", grid=(), reads=lambda: (x[:], y[:]), writes=lambda: o[:])
    return p


def unproved(p):
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F)
    a = p.input("a", (8,), et.i32, bound=7)
    e = p.events("E", (8,), count=1)
    p.call(copy, name="first", grid=(8,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: e[i])
    p.call(copy, name="second", grid=(8,), reads=lambda i: s[i], writes=lambda i: o[i],
           waits=lambda i: e[a[i]])
    return p


def contradiction(p):
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    second = p.input("second", (8,), et.i32, bound=7)
    p.fact(lambda i: second[i] >= 8, over=(8,))
    p.call(copy, name="late", grid=(8,), reads=lambda i: x[second[i]], writes=lambda i: o[i])
    return p


def unwritten(p):
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(copy, name="second", grid=(7,), reads=lambda i: x[i], writes=lambda i: o[i])
    return p


def unassigned(p):
    @et.task
    def head(x, o):
        o[0:3] = x[0:3]

    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(head, name="second", grid=(), reads=lambda: x[:], writes=lambda: o[:])
    return p


def written_twice(p):
    @et.task
    def both(x, o, more):
        more[...] = x
        o[...] = x + 1.0

    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(both, name="first", grid=(), reads=lambda: x[0:4],
           writes=lambda: (o[0:4], o[4:8]))
    p.call(both, name="second", grid=(2,), reads=lambda i: x[i],
           writes=lambda i: (o[i * 4], o[i * 6 - i]))
    return p


def too_few(p):
    @et.task
    def largest(x, o):
        o[...] = et.argmax(x)

    n = et.dim("n", min=0, max=64)
    x, o = p.input("x", (n,), F), p.output("o", (1,), et.i32)
    p.call(largest, name="second", grid=(1,), reads=lambda i: x[:], writes=lambda i: o[i])
    return p


def negative_extent(p):
    @et.task
    def zeros(o, *, n):
        o[...] = et.zeros((n - 4,)).sum()

    n = et.dim("n", max=64)
    o = p.output("o", (n,), F)
    p.call(zeros, name="second", grid=(n,), writes=lambda i: o[i])
    return p


CASES: dict[Kind, Callable[[et.Program], et.Program]] = {
    Kind.uncovered_read: uncovered, Kind.count_high: high, Kind.count_low: low,
    Kind.no_producer: no_producer, Kind.out_of_range: out_of_range, Kind.write_write: write_write,
    Kind.write_after_read: write_after_read, Kind.cycle: cycle, Kind.unbounded_index: unbounded,
    Kind.unequal_extents: unequal, Kind.unassigned: unassigned, Kind.unproved: unproved,
    Kind.contradiction: contradiction,
    Kind.too_few: too_few, Kind.negative_extent: negative_extent,
    Kind.unwritten: unwritten, Kind.written_twice: written_twice,
}


def test_there_is_a_case_for_every_kind():
    assert set(CASES) == set(Kind)


@pytest.mark.parametrize("kind", CASES, ids=str)
def test_a_kind_is_found_named_and_placed(kind):
    report = et.check(CASES[kind](et.Program("p")))
    assert not report.ok
    problem = next(q for q in report.problems if q.kind is kind)
    assert problem.code == kind.error.code
    assert "test_check_kinds.py:" in problem.place and problem.hint
    assert (report.status == "unproved") == (kind is Kind.unproved)
    if kind not in (Kind.unbounded_index,):
        assert problem.witness is not None and "second" in str(problem)


@et.task
def two(x, o, more):
    more[...] = x
    o[...] = x + 1.0


@et.task
def added(x, acc, o):
    acc[...] += x
    o[...] = x


@et.task
def added_twice(x, acc, more):
    acc[...] += x
    more[...] += x


@pytest.mark.parametrize("body, regions, ok", [
    (two, lambda s: {"writes": lambda i: (s[2 * i], s[2 * i + 1])}, True),
    (two, lambda s: {"writes": lambda i: (s[i], s[i])}, False),
    (added, lambda s: {"accumulates": lambda i: s[i], "writes": lambda i: s[i + 8]}, True),
    (added, lambda s: {"accumulates": lambda i: s[i], "writes": lambda i: s[i]}, False),
    (added_twice, lambda s: {"accumulates": lambda i: (s[i], s[i])}, False),
    (added_twice, lambda s: {"accumulates": lambda i: (s[i], s[i]), "unordered": True}, True),
    (added_twice, lambda s: {"accumulates": lambda i: (s[i], s[i + 1])}, True),
])
def test_written_arguments_of_one_task_are_disjoint_unless_all_are_added_in_any_order(
    body, regions, ok
):
    """Back ends store arguments in different orders, so the last one would differ."""
    p = et.Program("p")
    x, s = p.input("x", (8,), F), p.state("s", (16,), F)
    p.call(body, name="go", grid=(8,), reads=lambda i: x[i], **regions(s))
    report = et.check(p)
    assert report.ok == ok
    if not ok:
        (problem,) = report.problems
        assert problem.code == "ET225" and "go(i=0) writes s[0] twice" in problem.message


def test_the_update_of_the_paper_in_one_task_is_proved():
    """A task writes where it goes, and notifies by what it wrote."""
    p = et.Program("p")
    given = p.input("given", (8,), et.i32, bound=7, distinct=True)
    index = p.scratch("index", (8,), et.i32, bound=7, distinct=True)
    counts = p.input("counts", (8,), et.i32, bound=8)
    o = p.output("o", (8,), et.i32)
    routed = p.events("routed", (8,), count=lambda e: counts[e])
    written = p.events("written", (8,), count=1)
    p.call(copy, name="route", grid=(8,), reads=lambda i: given[i], writes=lambda i: index[i],
           notifies=lambda i: (routed[index[i]], written[i]))
    p.call(copy, name="use", grid=(8,), reads=lambda i: index[i], writes=lambda i: o[i],
           waits=lambda i: (written[i], routed[i]))
    assert et.check(p).ok
