"""Programs that a careless proof would pass, or refuse, wrongly: one test for each way to err."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.analysis.check_report import Kind
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import BadBody, NonAffine, OrderedDataAccumulate

F, I = et.f32, et.i32  # noqa: E741


@et.task
def copy(x, o):
    o[:] = x


@et.task
def total(x, o):
    o[:] = x.sum(axis=0)


@et.task
def add_in(x, o):
    o[:] += x


def kinds(p: et.Program) -> set[Kind]:
    return {problem.kind for problem in et.check(p).problems}


def test_a_count_by_form_needs_a_rectangular_grid():
    n = et.dim("n", max=100)
    p = et.Program("p")
    x, s = p.input("x", (n, n), F), p.scratch("s", (n, n), F)
    o, e = p.output("o", (n,), F), p.events("E", (n,), count=n)
    p.call(copy, grid=(n, lambda i: i + 1), reads=lambda i, j: x[i, j],
           writes=lambda i, j: s[i, j], notifies=lambda i, j: e[j])
    p.call(copy, grid=(n,), reads=lambda j: s[j, j], writes=lambda j: o[j], waits=lambda j: e[j])
    assert kinds(p) == {Kind.count_high}


def test_a_derived_count_that_is_run_time_data_is_read_after_its_writer():
    p = et.Program("p")
    given, x = p.input("given", (4,), I), p.input("x", (4, 8), F)
    t, s = p.scratch("t", (4,), I, bound=8), p.scratch("s", (4, 8), F)
    o = p.output("o", (4, 8), F)
    p.call(copy, name="a", grid=(4,), reads=lambda i: given[i], writes=lambda i: t[i])
    p.call(copy, name="b", grid=(4, lambda e: t[e]), reads=lambda e, j: x[e, j],
           writes=lambda e, j: s[e, j])
    p.call(copy, name="c", grid=(4,), reads=lambda e: s[e, :], writes=lambda e: o[e, :])
    state = run_passes(p, Options())
    assert state.report.ok
    first, second = state.plan.call("c").waits
    assert first.event.startswith("a_done") and str(state.plan.event(second.event).count) == "t[c0]"


@pytest.mark.parametrize("swapped", [False, True])
def test_a_wait_map_reads_only_what_earlier_waits_guard(swapped):
    p = et.Program("p")
    given, x = p.input("given", (8,), I, bound=7), p.input("x", (8,), F)
    index, s = p.scratch("index", (8,), I, bound=7), p.scratch("s", (8,), F)
    o = p.output("o", (8,), F)
    made, written = p.events("made", (8,), count=1), p.events("written", (8,), count=1)
    p.call(copy, grid=(8,), reads=lambda i: given[i], writes=lambda i: index[i],
           notifies=lambda i: made[i])
    p.call(copy, grid=(8,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: written[i])
    p.call(copy, grid=(8,), reads=lambda i: s[index[i]], writes=lambda i: o[i],
           waits=lambda i: (written[index[i]], made[i]) if swapped
           else (made[i], written[index[i]]))
    assert kinds(p) == ({Kind.uncovered_read} if swapped else set())


@pytest.mark.parametrize("case", ["nobody writes", "too few are written", "written later"])
def test_reads_of_nothing_are_found_where_data_picks_the_element(case):
    p = et.Program("p")
    index = p.input("index", (4,), I, bound=7, distinct=True)
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F, partial=True)
    if case == "too few are written":
        p.call(copy, grid=(4,), reads=lambda i: x[i], writes=lambda i: s[i])
    p.call(copy, grid=(4,), reads=lambda i: s[index[i]], writes=lambda i: o[i])
    if case == "written later":
        p.call(copy, grid=(8,), reads=lambda i: x[i], writes=lambda i: s[i])
    assert kinds(p) == {Kind.no_producer}


def test_what_only_data_may_have_written_is_an_obligation():
    p = et.Program("p")
    index = p.input("index", (4,), I, bound=7, distinct=True)
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F)
    p.call(copy, grid=(4,), reads=lambda i: x[i], writes=lambda i: s[index[i]])
    p.call(copy, name="r", grid=(8,), reads=lambda i: s[i], writes=lambda i: o[i])
    report = et.check(p)
    assert report.ok
    assert any("every element of s that 'r' reads" in o.what for o in report.obligations)


def test_a_fact_says_nothing_outside_its_range():
    p = et.Program("p")
    index = p.input("index", (8,), I, bound=7)
    x, o = p.input("x", (8,), F), p.output("o", (8,), F, partial=True)
    p.fact(lambda e: et.equal(index[e], e), over=(4,))
    p.call(copy, grid=(8,), reads=lambda i: x[i], writes=lambda i: o[index[i]])
    assert kinds(p) == {Kind.write_write}


def test_event_slices_are_clipped_like_tensor_slices():
    n = et.dim("n", max=100)
    p = et.Program("p")
    x, s, o = p.input("x", (n,), F), p.scratch("s", (n,), F), p.output("o", (n,), F)
    e = p.events("E", (n,), count=1)
    p.call(copy, grid=(n.tiles(4),), reads=lambda i: x[i * 4 : i * 4 + 4],
           writes=lambda i: s[i * 4 : i * 4 + 4], notifies=lambda i: e[i * 4 : i * 4 + 4])
    p.call(copy, grid=(n,), reads=lambda i: s[i], writes=lambda i: o[i], waits=lambda i: e[i])
    assert et.check(p).ok


def test_ordered_accumulation_over_a_run_time_grid_is_refused():
    p = et.Program("p")
    t, x = p.input("t", (4,), I, bound=8), p.input("x", (4, 8, 3), F)
    state = p.state("state", (3,), F)
    with pytest.raises(OrderedDataAccumulate):
        p.call(add_in, grid=(4, lambda e: t[e]), reads=lambda e, j: x[e, j, :],
               accumulates=lambda e, j: state[:])


def test_a_notify_map_sees_what_its_task_wrote_and_the_regions_do_not():
    @et.task
    def both(given, x, index, s):
        index[:] = given
        s[:] = x

    p = et.Program("p")
    given = p.input("given", (8,), I, bound=7, distinct=True)
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F)
    index = p.state("index", (8,), I, bound=7, distinct=True)
    e = p.events("E", (8,), count=1)
    p.call(both, grid=(8,), reads=lambda i: (given[i], x[i]),
           writes=lambda i: (index[i], s[index[i]]), notifies=lambda i: e[index[i]])
    p.call(copy, grid=(8,), reads=lambda i: s[i], writes=lambda i: o[i], waits=lambda i: e[i])
    assert not et.check(p).ok


@pytest.mark.parametrize("triangular", [False, True])
def test_run_time_data_in_nested_loops_is_ordered(triangular):
    outer, inner = et.dim("L", max=9), et.dim("M", max=9)
    p = et.Program("p")
    index = p.input("index", (8,), I, bound=7)
    y, z = p.state("y", (8,), F), p.scratch("z", (8,), F)
    with p.loop("l", outer) as k, p.loop("m", k if triangular else inner):
        p.call(copy, grid=(8,), reads=lambda i: y[index[i]], writes=lambda i: z[i])
        p.call(copy, grid=(8,), reads=lambda i: z[i], writes=lambda i: y[i])
    assert et.check(p).ok


def test_a_shape_that_can_be_negative_is_out_of_range():
    n = et.dim("n", max=100)
    p = et.Program("p")
    s, x, o = p.scratch("s", (n - 3, 8), F), p.input("x", (n, 8), F), p.output("o", (n, 8), F)
    p.call(copy, grid=(n - 3,), reads=lambda i: x[i, :], writes=lambda i: s[i, :])
    p.call(copy, grid=(n - 3,), reads=lambda i: s[i, :], writes=lambda i: o[i, :])
    problem = next(q for q in et.check(p).problems if q.kind is Kind.out_of_range)
    assert dict(problem.witness.dims) == {"n": 1}


@pytest.mark.core
def test_a_grid_that_can_be_negative_is_empty_and_safe():
    n = et.dim("n", max=100)
    p = et.Program("p")
    x, s, o = p.input("x", (n, 8), F), p.scratch("s", (n, 8), F), p.output("o", (n, 8), F)
    p.call(copy, grid=(n,), reads=lambda i: x[i, :], writes=lambda i: s[i, :])
    p.call(copy, grid=(n - 3,), reads=lambda i: s[i, :], writes=lambda i: s[i, :])
    p.call(copy, grid=(n,), reads=lambda i: s[i, :], writes=lambda i: o[i, :])
    for schedule in ("static", "ticket", "push"):
        kernel = et.compile(p, schedule=schedule, workers=2)
        for size in (1, 3, 4, 2):
            x_, o_ = np.full((size, 8), size, np.float32), np.zeros((size, 8), np.float32)
            kernel(x=x_, o=o_)
            np.testing.assert_array_equal(x_, o_)
        kernel.close()


def test_products_of_dims_in_shapes_are_refused():
    n, m = et.dim("n", max=9), et.dim("m", max=9)
    with pytest.raises(NonAffine):
        et.Program("p").input("x", (n * m,), F)


def test_an_empty_accumulation_is_zero_and_not_a_read_of_nothing():
    z = et.dim("z", min=0, max=9)
    p = et.Program("p")
    x, a, o = p.input("x", (z, 8), F), p.scratch("a", (8,), F), p.output("o", (8,), F)
    p.call(add_in, grid=(z,), reads=lambda i: x[i, :], accumulates=lambda i: a[:])
    p.call(copy, grid=(), reads=lambda: a[:], writes=lambda: o[:])
    assert et.check(p).ok


def test_loads_inside_row_indices_are_range_checked():
    p = et.Program("p")
    index = p.input("index", (8, 2), I, bound=7)
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(total, grid=(8,), reads=lambda i: x[index[i + 1, :]], writes=lambda i: o[i])
    assert kinds(p) == {Kind.out_of_range}


def test_rows_wholly_outside_their_index_tensor_are_out_of_range():
    p = et.Program("p")
    index = p.input("index", (8,), I, bound=7)
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(total, grid=(8,), reads=lambda i: x[index[i * 2 : i * 2 + 2]], writes=lambda i: o[i])
    assert kinds(p) == {Kind.out_of_range}


def test_a_cell_that_nobody_can_notify_is_too_high_whatever_the_data():
    p = et.Program("p")
    index = p.input("index", (8,), I, bound=3)
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F)
    e = p.events("E", (8,), count=1)
    p.call(copy, grid=(8,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: e[index[i]])
    p.call(copy, grid=(8,), reads=lambda i: s[i], writes=lambda i: o[i], waits=lambda i: e[i])
    assert Kind.count_high in kinds(p)


def test_a_body_takes_run_time_data_only_through_its_arguments():
    p = et.Program("p")
    t, x, o = p.input("t", (8,), I, bound=8), p.input("x", (8, 8), F), p.output("o", (8,), F)

    @et.task
    def body(x, o, *, i):
        acc = et.zeros(())
        for k in et.range(t[i]):
            acc[()] = acc + x[k]
        o[:] = acc

    with pytest.raises(BadBody):
        p.call(body, grid=(8,), reads=lambda i: x[i, :], writes=lambda i: o[i])


def test_a_body_that_assigns_half_its_region_leaves_an_obligation():
    @et.task
    def half(x, o):
        o[0:2] = x[0:2]

    p = et.Program("p")
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F)
    p.call(half, grid=(2,), reads=lambda i: x[i * 4 : i * 4 + 4],
           writes=lambda i: s[i * 4 : i * 4 + 4])
    p.call(copy, name="r", grid=(), reads=lambda: s[:], writes=lambda: o[:])
    assert any("every element of s that 'r' reads" in o.what for o in et.check(p).obligations)


@pytest.mark.parametrize("steps", [4, 6])
def test_an_index_in_a_body_is_proved_to_lie_in_its_tile(steps):
    @et.task
    def body(x, o):
        acc = et.zeros(())
        for k in et.range(steps):
            acc[()] = acc + x[k]
        o[:] = acc

    p = et.Program("p")
    x, o = p.input("x", (8, 4), F), p.output("o", (8,), F)
    p.call(body, grid=(8,), reads=lambda i: x[i, :], writes=lambda i: o[i])
    assert kinds(p) == (set() if steps == 4 else {Kind.out_of_range})


def one_call(body, p, reads, out):
    p.call(body, grid=(1,), reads=reads, writes=lambda i: out[:])
    return p


def test_values_of_a_body_in_its_extents_are_unproved_not_a_crash():
    @et.task
    def body(x, t, u, o):
        acc = et.zeros((1,))
        for k in et.range(t):
            acc[:] = acc + (x[k : k + 2] + x[k + u : k + u + 2]).sum(axis=0, keepdims=True)
        o[:] = acc

    p = et.Program("p")
    x, t, o = p.input("x", (8,), F), p.input("t", (2,), I), p.output("o", (1,), F)
    one_call(body, p, lambda i: (x[:], t[0], t[1]), o)
    assert kinds(p) == {Kind.unproved}


def test_a_sub_tile_of_computed_extent_is_an_obligation():
    @et.task
    def body(x, t, o):
        y = x[t : t + 6]
        o[:] = y[5]

    p = et.Program("p")
    x, t, o = p.input("x", (8,), F), p.input("t", (2,), I), p.output("o", (1,), F)
    one_call(body, p, lambda i: (x[:], t[0]), o)
    report = et.check(p)
    assert report.ok and any("computes lie in their tile" in o.what for o in report.obligations)


def test_a_reshape_of_clipped_axes_does_not_crash_the_proof():
    @et.task
    def body(x, o):
        v = x.reshape((x.shape[0] * x.shape[1],))
        o[:] = v[0] + v[0:2].sum(axis=0)

    n, m = et.dim("n", max=64), et.dim("m", max=64)
    p = et.Program("p")
    x, o = p.input("x", (n, m), F), p.output("o", (n.tiles(4), m.tiles(4)), F)
    p.call(body, grid=(n.tiles(4), m.tiles(4)),
           reads=lambda i, j: x[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4], writes=lambda i, j: o[i, j])
    assert et.check(p).ok


def test_a_run_time_extent_that_may_be_negative_is_refused():
    p = et.Program("p")
    t = p.input("t", (4,), I, bound=(-2, 3))
    x, o = p.input("x", (4, 4), F), p.output("o", (4, 4), F, partial=True)
    p.call(copy, grid=(4, lambda i: t[i]), reads=lambda i, j: x[i, j], writes=lambda i, j: o[i, j])
    assert kinds(p) == {Kind.out_of_range}


@pytest.mark.core
def test_a_grid_that_depends_on_a_run_time_coordinate_is_counted_where_it_exists():
    p = et.Program("p")
    t = p.input("t", (4,), I, bound=3)
    x, s = p.input("x", (4, 3, 3), F), p.state("s", (4, 3, 3), F)
    o = p.output("o", (4, 3, 3), F)
    p.call(copy, grid=(4, lambda e: t[e], lambda e, j: j + 1),
           reads=lambda e, j, k: x[e, j, k], writes=lambda e, j, k: s[e, j, k], name="fill")
    p.call(copy, grid=(4,), reads=lambda e: s[e, :, :], writes=lambda e: o[e, :, :], name="use")
    report = et.check(p)
    assert report.ok, str(report)
    for schedule in ("static", "ticket", "push"):
        kernel = et.compile(p, schedule=schedule, workers=3)
        values = np.arange(36, dtype=np.float32).reshape(4, 3, 3)
        out = np.zeros_like(values)
        kernel(t=np.array([2, 0, 3, 1], np.int32), x=values, s=np.zeros_like(values), o=out)
        assert out[2, 2, 2] == values[2, 2, 2] and out[0, 1, 0] == values[0, 1, 0]
        kernel.close()


@pytest.mark.parametrize("count", [None, 2, 1, 3])
def test_the_variable_of_a_loop_of_one_iteration_may_be_0_in_maps(count):
    """As it is in those that are derived (no count here)."""
    p = et.Program("p")
    used, x = p.input("used", (1,), I, bound=8), p.input("x", (8, 2), F)
    s, o = p.scratch("s", (1, 8, 2), F), p.output("o", (1, 8), F, partial=True)
    done = p.events("done", (1, 8), count=count or 2)
    with p.loop("l", 1) as at:
        p.call(copy, grid=(used[at], 2), reads=lambda a, i: x[a, i],
               writes=lambda a, i: s[at, a, i], notifies=lambda a, i: done[0, a])
        p.call(total, grid=(used[at],), reads=lambda a: s[at, a, :], writes=lambda a: o[at, a],
               waits=None if count is None else lambda a: done[0, a])
    assert et.check(p).ok is (count in (None, 2))


def taken(low, high, size=4):
    """A piece of a at a place that is read at run time."""
    n = et.dim("n", max=4096)
    p = et.Program("p")
    a, o = p.input("a", (n,), F), p.output("o", (1,), F)
    at = p.input("at", (), I, bound=(low, high(n)))
    p.call(add_up, grid=(), reads=lambda: a[at[()] : at[()] + size], writes=lambda: o[:])
    return p


@et.task
def add_up(x, o):
    o[:] = x.sum(axis=0, keepdims=True)


@pytest.mark.parametrize(("low", "high", "size"), [
    (0, lambda n: n + 1, 4), (0, lambda n: n, 1), (-1, lambda n: n, 4),
])
def test_a_run_time_slice_that_may_lie_outside_is_refused(low, high, size):
    problem = et.check(taken(low, high, size)).problems[0]
    assert problem.code == "ET205" and problem.witness.dims == (("n", 1),)


@pytest.mark.parametrize("target", ["interp", "cpu"])
@pytest.mark.parametrize("debug", [False, True])
def test_a_run_time_slice_at_the_end_is_empty(target, debug):
    kernel = et.compile(taken(0, lambda n: n), target=target, debug=debug)
    for at, want in ((0, 4), (3, 2), (5, 0)):
        o = np.full(1, 7, np.float32)
        given = {"a": np.ones(5, np.float32), "at": np.array(at, np.int32), "o": o}
        kernel.validate(**given)
        kernel(**given)
        assert o[0] == want
    assert not any("slice" in x.what for x in kernel.report.obligations)
