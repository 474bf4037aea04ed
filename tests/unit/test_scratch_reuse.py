"""Scratch that the iterations of a loop share (analysis/reuse.py), where that is legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import HandoffKind, Plan
from eventtensor.ir.walk import evaluate

L, N, TILE = 5, 24, 8
TILES = N // TILE


@et.task
def step(x, y):
    y[:] = x * 2.0 + 1.0


@et.task
def total(x, y):
    y[:] = x * 0.5 + x.sum(axis=0) * 0.125


@et.task
def both(x, z, y):
    y[:] = x + z


@et.task
def count_in(x, n):
    n[:] = (x > -1e9).cast(et.i32).sum(axis=0)


def cut(i: Any) -> slice:
    return slice(i * TILE, i * TILE + TILE)


def program(build: Callable[..., None], **scratch: tuple[int, ...]) -> et.Program:
    """x -> h[0], then `build` for each iteration, then h[L] -> out."""
    p = et.Program("loops")
    x, out = p.input("x", (N,), et.f32), p.output("out", (N,), et.f32)
    h = p.scratch("h", (L + 1, N), et.f32)
    more = [p.scratch(name, shape, et.f32) for name, shape in scratch.items()]
    p.call(step, name="begin", grid=(TILES,), reads=lambda i: x[cut(i)],
           writes=lambda i: h[0, cut(i)])
    with p.loop("l", L) as at:
        build(p, at, h, *more)
    p.call(step, name="end", grid=(TILES,), reads=lambda i: h[L, cut(i)],
           writes=lambda i: out[cut(i)])
    return p


def first(p: et.Program, at: Any, h: Any, a: Any) -> None:
    p.call(step, name="first", grid=(TILES,), reads=lambda i: h[at, cut(i)],
           writes=lambda i: a[at, cut(i)])


def in_turn(p: et.Program, at: Any, h: Any, a: Any) -> None:
    """Every tile of an iteration waits for all of the one before."""
    first(p, at, h, a)
    p.call(total, name="second", grid=(), reads=lambda: a[at, :], writes=lambda: h[at + 1, :])


def planned(p: et.Program, **options: Any) -> Plan:
    state = run_passes(p, Options(**options))
    assert state.report is not None and state.report.ok, str(state.report)
    assert state.plan is not None
    return state.plan


def test_iterations_in_turn_share_their_scratch():
    plan = planned(program(in_turn, a=(L, N)))
    assert plan.shared_scratch == ("h", "a")
    assert plan.iteration_private == {"a"}  # what is read of h, the iteration before has written
    assert evaluate(plan.workspace, {}) == 2 * 128  # of N floats each, to a cache line


def results(p: et.Program, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of iterations kept apart, and as they share."""
    x = np.random.default_rng(3).normal(size=N).astype(np.float32)
    found = []
    for debug in (True, False):
        kernel = et.compile(p, target="cpu", debug=debug, **options)
        assert not debug or not kernel.plan.shared_scratch
        out = np.full(N, np.nan, np.float32)
        kernel(x=x, out=out)
        found.append(out)
    return found[0], found[1]


@pytest.mark.parametrize("schedule", ["static", "ticket", "push"])
def test_results_are_those_of_iterations_kept_apart(schedule):
    p = program(in_turn, a=(L, N))
    for _ in range(20):
        np.testing.assert_array_equal(*results(p, schedule=schedule))


def test_the_interpreter_knows_what_each_iteration_has_written():
    assert planned(program(in_turn, a=(L, N)), target="interp").shared_scratch == ()


# ---- each task must read what it did before ------------------------------------------------------


@et.task
def two(x, k, v):
    k[:] = x + 1.0
    v[:] = x * 2.0


@et.task
def half(x, old, y):
    y[0 : N // 2] = x[0 : N // 2] + 100.0


def two_points(p: et.Program, at: Any, h: Any, c: Any) -> None:
    p.call(two, name="make", grid=(), reads=lambda: h[at, :],
           writes=lambda: (c[2 * at, :], c[2 * at + 1, :]))
    p.call(both, name="take", grid=(), reads=lambda: (c[2 * at, :], c[2 * at + 1, :]),
           writes=lambda: h[at + 1, :])


def in_part(p: et.Program, at: Any, h: Any, c: Any) -> None:
    """What `some` leaves as it was, the iteration before has written."""
    p.call(step, name="whole", grid=(), reads=lambda: h[at, :], writes=lambda: c[at + 1, :])
    p.call(half, name="some", grid=(), reads=lambda: (h[at, :], c[at, :]), writes=lambda: c[at, :])
    p.call(both, name="take", grid=(), reads=lambda: (h[at, :], c[at, :]),
           writes=lambda: h[at + 1, :])


@et.task
def mixed(x, z, w, y):
    y[:] = x * 0.5 + z.sum(axis=0) + 0.25 * w.sum(axis=0)


def old_and_new(p: et.Program, at: Any, h: Any, c: Any) -> None:
    p.call(step, name="new", grid=(), reads=lambda: h[at, at + 1 : N],
           writes=lambda: c[at + 1, at + 1 : N])
    p.call(mixed, name="take", grid=(),
           reads=lambda: (h[at, :], c[at, at:N], c[at + 1, at + 1 : N]),
           writes=lambda: h[at + 1, :])


@pytest.mark.parametrize("build, points", [
    (two_points, 2 * L), (in_part, L + 1), (old_and_new, L + 1)])
def test_no_task_reads_what_another_wrote(build: Callable[..., None], points: int):
    p = et.Program("flow")
    x, out = p.input("x", (N,), et.f32), p.output("out", (N,), et.f32)
    h, c = p.scratch("h", (L + 1, N), et.f32), p.scratch("c", (points, N), et.f32)
    p.call(step, name="begin", grid=(), reads=lambda: x[:], writes=lambda: h[0, :])
    if build is not two_points:
        p.call(step, name="first", grid=(), reads=lambda: h[0, :], writes=lambda: c[0, :])
    with p.loop("l", L) as at:
        build(p, at, h, c)
    p.call(step, name="end", grid=(), reads=lambda: h[L, :], writes=lambda: out[:])
    np.testing.assert_array_equal(*results(p))
    assert "c" not in planned(p).shared_scratch


def test_an_inner_loop_has_what_the_outer_iteration_before_wrote():
    @et.task
    def summed(x, z, y):
        y[:] = x * 0.5 + z.sum(axis=0)

    p = et.Program("nested")
    x, out = p.input("x", (N,), et.f32), p.output("out", (N,), et.f32)
    h, b = p.scratch("h", (3 * L + 1, N), et.f32), p.scratch("b", (3 * L, N), et.f32)
    a = p.scratch("a", (L, N), et.f32)
    p.call(step, name="begin", grid=(), reads=lambda: x[:], writes=lambda: h[0, :])
    with p.loop("m", 3) as m, p.loop("l", L) as at:
        p.call(summed, name="old", grid=(), reads=lambda: (h[m * L + at, :], a[at, 0:m]),
               writes=lambda: b[m * L + at, :])
        p.call(step, name="new", grid=(), reads=lambda: b[m * L + at, :],
               writes=lambda: a[at, :])
        p.call(summed, name="next", grid=(), reads=lambda: (b[m * L + at, :], a[at, :]),
               writes=lambda: h[m * L + at + 1, :])
    p.call(step, name="end", grid=(), reads=lambda: h[3 * L, :], writes=lambda: out[:])
    np.testing.assert_array_equal(*results(p))
    assert "a" not in planned(p).shared_scratch


def test_what_is_copied_in_bulk_lies_where_that_was_decided():
    p = program(in_turn, a=(L, N))
    plan = planned(p, target="cuda", handoff="bulk")
    copied = {t for h in plan.handoffs if h.kind is HandoffKind.bulk for t in h.tensors}
    assert copied and not copied & set(plan.shared_scratch)


# ---- order -------------------------------------------------------------------------------------


def test_a_tile_that_nothing_holds_back_keeps_its_own():
    """The next iteration's first tiles need h alone, which others give."""

    def loose(p: et.Program, at: Any, h: Any, a: Any, b: Any) -> None:
        first(p, at, h, a)
        p.call(step, name="side", grid=(TILES,), reads=lambda i: a[at, cut(i)],
               writes=lambda i: b[at, cut(i)])
        p.call(step, name="next", grid=(TILES,), reads=lambda i: h[at, cut(i)],
               writes=lambda i: h[at + 1, cut(i)])

    def kept(p: et.Program, at: Any, h: Any, a: Any, b: Any, c: Any) -> None:
        first(p, at, h, a)
        p.call(step, name="side", grid=(TILES,), reads=lambda i: a[at, cut(i)],
               writes=lambda i: b[at, cut(i)])
        p.call(step, name="middle", grid=(TILES,), reads=lambda i: h[at, cut(i)],
               writes=lambda i: c[at, cut(i)])
        p.call(step, name="next", grid=(TILES,), reads=lambda i: c[at, cut(i)],
               writes=lambda i: h[at + 1, cut(i)])

    assert planned(program(loose, a=(L, N), b=(L, N))).shared_scratch == ()
    assert "a" not in planned(program(kept, a=(L, N), b=(L, N), c=(L, N))).shared_scratch


def test_what_an_older_iteration_wrote_stays():
    """With one place, the new one would be read in its stead."""
    p = et.Program("older")
    x, out = p.input("x", (N,), et.f32), p.output("out", (N,), et.f32)
    h, old = (p.scratch(name, (L + 1, N), et.f32) for name in ("h", "old"))
    p.call(step, name="first", grid=(), reads=lambda: x[:], writes=lambda: old[0, :])
    p.call(step, name="begin", grid=(), reads=lambda: old[0, :], writes=lambda: h[0, :])
    with p.loop("l", L) as at:
        p.call(step, name="make", grid=(), reads=lambda: h[at, :], writes=lambda: old[at + 1, :])
        p.call(both, name="take", grid=(), reads=lambda: (old[at, :], old[at + 1, :]),
               writes=lambda: h[at + 1, :])
    p.call(step, name="end", grid=(), reads=lambda: h[L, :], writes=lambda: out[:])
    assert planned(p).shared_scratch == ("h",)


def test_a_task_that_reads_what_it_writes_keeps_them_apart():
    def itself(p: et.Program, at: Any, h: Any) -> None:
        p.call(step, name="only", grid=(), reads=lambda: h[at, :], writes=lambda: h[at + 1, :])

    assert planned(program(itself)).shared_scratch == ()


def test_a_sum_that_begins_at_zero_begins_anew_in_each_iteration():
    @et.task
    def add_in(x, y):
        y[:] += x

    def sums(p: et.Program, at: Any, h: Any, a: Any) -> None:
        p.call(add_in, name="first", grid=(TILES,), reads=lambda i: h[at, cut(i)],
               accumulates=lambda i: a[at, cut(i)])
        p.call(total, name="second", grid=(), reads=lambda: a[at, :], writes=lambda: h[at + 1, :])

    assert planned(program(sums, a=(L, N))).shared_scratch == ("h",)


def test_tensors_that_carry_flags_stay():
    p = program(in_turn, a=(L, N))
    flags = planned(p, target="cuda", handoff="tagged")
    assert {h.kind for h in flags.handoffs} == {HandoffKind.tagged}
    assert flags.shared_scratch == ()
    assert planned(p, target="cuda", handoff="counter").shared_scratch == ("h", "a")


def test_flags_order_nothing_but_their_words():
    """`a` has no flags: an element and a flag do not fit a word. That it has been read, those of h
    do not tell."""

    @et.task
    def whole(x, y):
        y[:] = x.cast(et.i64)

    @et.task
    def back(x, y):
        y[:] = x.cast(et.f32)

    p = et.Program("words")
    x, out = p.input("x", (N,), et.f32), p.output("out", (N,), et.f32)
    h, a = p.scratch("h", (L + 1, N), et.f32), p.scratch("a", (L, N), et.i64)
    p.call(step, name="begin", grid=(), reads=lambda: x[:], writes=lambda: h[0, :])
    with p.loop("l", L) as at:
        p.call(whole, name="first", grid=(), reads=lambda: h[at, :], writes=lambda: a[at, :])
        p.call(back, name="second", grid=(TILES,), reads=lambda i: a[at, cut(i)],
               writes=lambda i: h[at + 1, cut(i)])
    p.call(step, name="end", grid=(), reads=lambda: h[L, :], writes=lambda: out[:])
    found = planned(p, target="cuda", handoff="tagged")
    assert {t for h in found.handoffs for t in h.tensors} == {"h"}
    assert found.shared_scratch == ()
    assert planned(p, target="cuda", handoff="counter").shared_scratch == ("h", "a")


@pytest.mark.parametrize("stated", [False, True])
def test_a_grid_that_surely_has_a_tile_lets_order_through(stated):
    """Whether `middle` has tiles, a number says that the launch finds."""
    p = et.Program("sure")
    x, out = p.input("x", (N,), et.f32), p.output("out", (N,), et.f32)
    n = p.scratch("n", (1,), et.i32, bound=N)
    h, a = p.scratch("h", (L + 1, N), et.f32), p.scratch("a", (L, N), et.f32)
    part = p.scratch("part", (L, N), et.f32)
    if stated:
        p.fact(n[0] >= 1)
    p.call(count_in, grid=(1,), reads=lambda i: x[:], writes=lambda i: n[i])
    p.call(step, name="begin", grid=(), reads=lambda: x[:], writes=lambda: h[0, :])
    with p.loop("l", L) as at:
        p.call(step, name="first", grid=(), reads=lambda: h[at, :], writes=lambda: a[at, :])
        p.call(step, name="middle", grid=(n[0],), reads=lambda i: a[at, i],
               writes=lambda i: part[at, i])
        p.call(step, name="last", grid=(), reads=lambda: part[at, 0 : n[0]],
               writes=lambda: h[at + 1, 0 : n[0]])
    p.call(step, name="end", grid=(), reads=lambda: h[L, 0 : n[0]], writes=lambda: out[0 : n[0]])
    assert ("a" in planned(p).shared_scratch) == stated
