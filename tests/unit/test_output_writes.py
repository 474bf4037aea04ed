"""Outputs that no task writes, or not all of, and those that run-time data decides about."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.analysis.check_report import Status

F, I = et.f32, et.i32  # noqa: E741
n = et.dim("n", max=4096)


@et.task
def copy(x, o):
    o[:] = x


@et.task
def add(x, o):
    o[:] += x


def tiled(grid, size=8, **kind):
    p = et.Program("p")
    x, o = p.input("x", (n,), F), p.output("o", (n,), F, **kind)
    p.call(copy, grid=(grid,), reads=lambda i: x[i * size : i * size + size],
           writes=lambda i: o[i * size : i * size + size])
    return p


def ragged(tiles, first=True, last=True, **kind):
    """Rows ptr[g]..ptr[g+1] of o in tiles of 16, each clipped at the end of its rows."""
    groups = et.dim("G", max=64)
    p = et.Program("ragged")
    x, o = p.input("x", (n,), F), p.output("o", (n,), F, **kind)
    ptr = p.input("ptr", (groups + 1,), I, bound=n, monotone=True)
    if first:
        p.fact(et.equal(ptr[0], 0))
    if last:
        p.fact(et.equal(ptr[groups], n))

    def rows(g, t):
        return slice(ptr[g] + t * 16, et.min(ptr[g] + t * 16 + 16, ptr[g + 1]))

    p.call(copy, grid=(groups, lambda g: tiles(ptr[g + 1] - ptr[g])),
           reads=lambda g, t: x[rows(g, t)], writes=lambda g, t: o[rows(g, t)])
    return p


def scattered(count=n, **facts):
    p = et.Program("scattered")
    x, o = p.input("x", (n,), F), p.output("o", (n,), F)
    to = p.input("to", (n,), I, bound=n - 1, **facts)
    p.call(copy, grid=(count,), reads=lambda i: x[i], writes=lambda i: o[to[i]])
    return p


def up(k):
    return (k + 15) // 16


def test_an_output_that_no_call_writes():
    p = et.Program("p")
    x, o = p.input("x", (n,), F), p.output("o", (n,), F)
    p.output("forgotten", (4, n), F)
    p.call(copy, grid=(n,), reads=lambda i: x[i], writes=lambda i: o[i])
    problem = et.check(p).problems[0]
    assert problem.code == "ET221" and str(problem.witness) == "n = 1, forgotten[0, 0]"
    assert "no call writes" in problem.message and "test_output_writes.py:" in problem.place


@pytest.mark.parametrize(("grid", "least"), [(n // 8, 0), (n.tiles(8) - 1, 0), (1, 8)])
def test_a_grid_that_is_too_short_is_a_problem_with_the_smallest_case(grid, least):
    report = et.check(tiled(grid))
    (problem,) = report.problems
    assert (problem.code, report.status) == ("ET221", Status.refuted)
    assert problem.witness.dims == (("n", least + 1),) and problem.witness.index == (least,)
    with pytest.raises(et.EventTensorError, match="partial=True"):
        et.compile(tiled(grid), target="interp")


def test_what_covers_an_output_or_says_that_it_is_partial_is_proved():
    assert et.check(tiled(n.tiles(8))).status == Status.proved
    assert et.check(tiled(n // 8, partial=True)).ok


def test_a_loop_that_may_not_run_writes_nothing():
    layers = et.dim("L", min=0, max=4)
    p = et.Program("p")
    x, o = p.input("x", (n,), F), p.output("o", (n,), F)
    with p.loop("l", layers):
        p.call(copy, grid=(n,), reads=lambda i: x[i], writes=lambda i: o[i])
    (problem,) = et.check(p).problems
    assert problem.code == "ET221" and dict(problem.witness.dims)["L"] == 0


def test_what_is_accumulated_into_starts_at_zero():
    p = et.Program("p")
    x, o = p.input("x", (n,), F), p.output("o", (n,), F)
    p.call(add, grid=(n // 8,), reads=lambda i: x[i], accumulates=lambda i: o[i])
    assert et.check(p).ok


def test_two_calls_share_an_output():
    p = et.Program("p")
    x, o = p.input("x", (n,), F), p.output("o", (n,), F)
    p.call(copy, grid=(n // 2,), reads=lambda i: x[i], writes=lambda i: o[i])
    p.call(copy, grid=(n - n // 2,), reads=lambda i: x[n // 2 + i], writes=lambda i: o[n // 2 + i])
    assert et.check(p).status == Status.proved


@pytest.mark.parametrize("program", [
    lambda: ragged(lambda k: k // 16),
    lambda: ragged(up, first=False),
    lambda: ragged(up, last=False),
    lambda: scattered(),
    lambda: scattered(n - 1, distinct=True),
], ids=["tiles rounded down", "first row open", "last row open", "twice the same", "one less"])
def test_run_time_data_that_leaves_elements_out_is_found(program):
    report = et.check(program())
    problem = next(q for q in report.problems if q.code == "ET221")
    assert report.status == Status.refuted
    assert problem.witness.index is not None


@pytest.mark.parametrize("program", [
    lambda: ragged(up), lambda: scattered(distinct=True),
])
def test_what_facts_seem_to_cover_is_owed_by_the_data(program):
    report = et.check(program())
    assert report.status == Status.conditional
    assert any("every element of output o is written" in x.what for x in report.obligations)


def test_the_data_of_a_case_is_told():
    problem = et.check(scattered()).problems[-1]
    assert dict(problem.witness.dims) == {"n": 2} and problem.witness.index == (0,)
    assert "where to[0] = 1 and to[1] = 1" in problem.message


def test_a_partial_output_owes_nothing():
    report = et.check(ragged(lambda k: k // 16, partial=True))
    assert report.ok and not any("is written" in x.what for x in report.obligations)


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_debug_finds_what_computed_data_leaves_out(target):
    """Nothing is known of what tasks compute beyond its facts."""
    p = et.Program("p")
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    given, to = p.input("given", (8,), I), p.scratch("to", (8,), I, bound=7, distinct=True)
    p.call(copy, name="route", grid=(8,), reads=lambda i: given[i], writes=lambda i: to[i])
    p.call(copy, grid=(7,), reads=lambda i: x[i],
           writes=lambda i: o[to[i]])
    assert et.check(p).status == Status.conditional
    kernel = et.compile(p, target=target, debug=True)
    with pytest.raises(et.EventTensorError, match=r"ET324: no task has written o\[7\]"):
        kernel(x=np.ones(8, np.float32), o=np.zeros(8, np.float32),
               given=np.arange(8, dtype=np.int32))


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_debug_poisons_what_a_partial_output_leaves_out(target):
    out = np.ones(13, np.float32)
    et.compile(tiled(n // 8, partial=True), target=target, debug=True)(
        x=np.zeros(13, np.float32), o=out)
    assert not out[:8].any() and np.isnan(out[8:]).all()


def test_partial_is_in_the_text_and_for_outputs():
    p = tiled(n // 8, partial=True)
    assert "output o : f32[n]; partial" in str(p)
    assert et.parse(str(p)) == p.build() and et.parse(str(p)).tensor("o").partial
    with pytest.raises(et.EventTensorError, match="partial"):
        et.Program("q").scratch("s", (n,), F, partial=True)
    with pytest.raises(et.EventTensorError, match="partial"):
        et.parse(str(p).replace("input x : f32[n]", "input x : f32[n]; partial"))
