"""Bodies that leave part of a declared region unassigned, and those that assign it in parts."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et

F, I = et.f32, et.i32  # noqa: E741
n = et.dim("n", max=4096)


@et.task
def copy(x, o):
    o[:] = x


@et.task
def head(x, o):
    o[0:3] = x[0:3]


@et.task
def whole_chunks(x, o):
    for t in et.range(x.shape[0] // 8):
        o[t * 8 : t * 8 + 8] = x[t * 8 : t * 8 + 8]


@et.task
def chunks(x, o):
    for t in et.range((x.shape[0] + 7) // 8):
        o[t * 8 : t * 8 + 8] = x[t * 8 : t * 8 + 8]


@et.task
def counted(x, count, o):
    for t in et.range(count):
        o[t] = x[t]


@et.task
def scattered(x, to, o):
    for t in et.range(8):
        o[to[t]] = x[t]


@et.task
def by_coordinate(x, o, *, i):
    o[0 : i + 1] = x[0 : i + 1]


@et.task
def parted(x, cut, o):
    o[0:cut] = x[0:cut]
    o[cut:8] = x[cut:8] * 2.0


@et.task
def unrolled(x, o):
    for k in range(8):
        o[k] = x[k]


@et.task
def cleared(x, count, o):
    o[:] = et.zeros(o.shape)
    for t in et.range(count):
        o[t] = x[t]


def program(body, *others, size=8, role="scratch"):
    """The body fills rows of s, of which a consumer reads all."""
    p = et.Program("p")
    x, o = p.input("x", (n, size), F), p.output("o", (n, size), F)
    s = getattr(p, role)("s", (n, size), F)
    given = [p.input(name, shape, I, bound=8) for name, shape in others]
    p.call(body, name="make", grid=(n,), writes=lambda i: s[i, :],
           reads=lambda i: (x[i, :], *(g[:] if g.tensor.shape else g[()] for g in given)))
    p.call(copy, name="take", grid=(n,), reads=lambda i: s[i, :], writes=lambda i: o[i, :])
    return p


REFUSED = {
    "a part": (lambda: program(head), (0, 3)),
    "whole chunks": (lambda: program(whole_chunks, size=12), (0, 8)),
    "a count that is data": (lambda: program(counted, ("count", ())), (0, 0)),
    "places that are data": (lambda: program(scattered, ("to", (8,))), (0, 0)),
    "some coordinates": (lambda: program(by_coordinate), (0, 1)),
    "state": (lambda: program(head, role="state"), (0, 3)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_body_may_leave_is_refused_with_the_element(case):
    make, index = REFUSED[case]
    problem = et.check(make()).problems[0]
    assert (problem.code, problem.witness.index) == ("ET220", index)
    assert problem.witness.dims == (("n", 1),) and "s[i, 0:" in problem.message
    with pytest.raises(et.EventTensorError, match="ET220"):
        et.compile(make(), target="interp")


@pytest.mark.parametrize("make", [
    lambda: program(unrolled),
    lambda: program(chunks),
    lambda: program(chunks, size=13),
    lambda: program(parted, ("cut", ())),
    lambda: program(cleared, ("count", ())),
])
def test_a_region_assigned_in_parts_is_proved(make):
    assert et.check(make()).ok


@pytest.mark.parametrize(("low", "proved"), [(0, True), (1, False)])
def test_a_loop_over_a_dim_that_may_be_zero(low, proved):
    """Rows 1.. of a region are assigned by a loop; with row 0 they are all of it."""

    @et.task
    def rows(x, o):
        for t in et.range(x.shape[0] - low):
            o[t + low] = x[t + low]

    m = et.dim("m", min=0, max=64)
    p = et.Program("p")
    x, o = p.input("x", (m, 4), F), p.output("o", (m, 4), F)
    p.call(rows, grid=(), reads=lambda: x[:, 0], writes=lambda: o[:, 0])
    found = {q.code for q in et.check(p).problems}
    assert ("ET220" not in found) is proved


def in_place(read):
    p = et.Program("p")
    x, o = p.input("x", (n, 8), F), p.output("o", (n, 8), F)
    p.call(copy, name="fill", grid=(n,), reads=lambda i: x[i, :], writes=lambda i: o[i, :])

    @et.task
    def change(old, o):
        o[0:3] = old[0:3] * 2.0

    p.call(change, grid=(n,), reads=lambda i: o[i, 0:read], writes=lambda i: o[i, :])
    return p


def test_what_a_task_reads_as_well_keeps_its_value():
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    for target, debug in (("interp", True), ("cpu", False), ("cpu", True)):
        out = np.zeros((2, 8), np.float32)
        et.compile(in_place(8), target=target, debug=debug)(x=x, o=out)
        assert np.array_equal(out, np.concatenate([x[:, :3] * 2, x[:, 3:]], axis=1))


def test_only_what_is_read_keeps_its_value():
    problem = et.check(in_place(6)).problems[0]
    assert (problem.code, problem.witness.index) == ("ET220", (0, 6))


def test_places_of_rows_that_data_picks_are_told_by_the_tile():
    p = et.Program("p")
    x, s = p.input("x", (8,), F), p.state("s", (64,), F)
    to = p.input("to", (8,), I, bound=63, distinct=True)
    p.call(head, grid=(), reads=lambda: x[:], writes=lambda: s[to[0:8]])
    problem = et.check(p).problems[0]
    assert problem.code == "ET220" and problem.witness.index is None
    assert "element [3]" in problem.message
