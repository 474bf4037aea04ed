"""Waits attach to the chunk of an operand that they guard: a body that walks an operand in a loop
waits in iteration v for the producers of chunk v, and for nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.analysis.check import verify
from eventtensor.analysis.check_report import Kind
from eventtensor.compiler import State
from eventtensor.interp import Order, Task
from eventtensor.interp.ready_queue import ReadyQueue
from eventtensor.interp.run import Machine
from eventtensor.interp.shadow_memory import make_memory
from eventtensor.interp.tasks import Execution, Mode
from eventtensor.ir.expr import Const, Var, add, compare
from eventtensor.ir.plan import Wait, visit
from eventtensor.ir.text import nest_text
from eventtensor.ir.walk import evaluate
from tests.support.backends import ORDERS, make_arrays, passes, plan_with, run_direct, run_interp
from tests.support.bases import chunk_layers, chunks
from tests.support.bodies import mix1, walk

T = 4
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31)


def waits_of(state: State, call: str, chunked: bool) -> tuple[Wait, ...]:
    assert state.derived is not None and state.report is not None
    assert state.report.ok, str(state.report)
    return tuple(w for w in state.derived.waits[call] if (w.loop is not None) == chunked)


def texts(waits: tuple[Wait, ...]) -> list[str]:
    """Cells, with the loop's value named v."""
    return [
        f"{w.event}: {nest_text(n)}".replace(f"%{w.loop.var}" if w.loop else "%", "v")
        for w in waits
        for n in w.cells
    ]


# ---- what is derived -----------------------------------------------------------------------


@pytest.mark.parametrize(("tile", "shape", "most", "wait"), [
    (T, "(n + 3)//4", 1, "part_done: [v]"),
    (T // 2, "((n + 1)//2 + 1)//2", 2, "part_done: [v]"),
    (2 * T, "(n + 7)//8", 1, "part_done: if (v%2 == 0): [v//2]"),
], ids=["equal", "half", "double"])
def test_cells_are_as_wide_as_a_chunk_or_a_producer(tile, shape, most, wait):
    state = passes(chunks(T, tile))
    assert texts(waits_of(state, "walk", chunked=True)) == [wait]
    event = next(e for e in state.derived.events if e.name == "part_done")
    assert [str(s) for s in event.shape] == [shape]
    counts = [evaluate(event.count, {"n": 17 * T, "c0": c}) for c in range(17 * T // (most * tile))]
    assert set(counts) == {most}


def test_other_operands_are_waited_for_before_the_body():
    state = passes(chunks())
    assert texts(waits_of(state, "walk", chunked=False)) == ["other_done: []"]


@pytest.mark.parametrize(("chunk", "tile"), [(4, 4), (4, 2), (4, 8), (6, 4), (3, 7)])
def test_each_iteration_waits_for_its_producers_and_no_others(chunk, tile):
    """By enumeration; a producer that an earlier iteration needed too is not waited for again."""
    state = passes(chunks(chunk, tile))
    (wait,) = waits_of(state, "walk", chunked=True)
    (notify,) = state.derived.notifies["part"]
    for n in SIZES:
        cells = {c: {i for i in range(-(-n // tile))
                     if c in visit(notify.cells[0], {"n": n, "i": i})}
                 for c in ((k,) for k in range(n))}
        done: set[int] = set()
        for v in range(-(-n // chunk)):
            rows = range(v * chunk, min(v * chunk + chunk, n))
            needed = {r // tile for r in rows}
            env = {"n": n, "i": 0, f"%{wait.loop.var}": v}
            waited = {p for nest in wait.cells for c in visit(nest, env) for p in cells[c]}
            assert waited <= needed <= waited | done, (n, v)
            done |= waited


def test_the_plan_and_explain_say_where_a_wait_stands():
    state = passes(chunks())
    (wait,) = waits_of(state, "walk", chunked=True)
    assert f"wait part_done at each %{wait.loop.var}: [%{wait.loop.var}]" in str(state.plan)
    told = et.explain(chunks(), "static")
    assert f"walk(i), in each iteration %{wait.loop.var}, waits for" in told


def test_a_task_that_overwrites_what_producers_read_waits_for_them_before_its_body():
    state = passes(chunk_layers())
    (before,) = waits_of(state, "walk", chunked=False)
    assert (before.reason, texts((before,))) == ("x (war)", ["part_done: [l, i]"])
    assert texts(waits_of(state, "walk", chunked=True)) == ["part_done: [l, v]"]


def test_order_through_a_chunk_is_no_order_of_the_whole_task():
    """first -> second -> walk by chunks, and walk takes what first wrote whole: it must wait for
    first itself."""
    n = et.dim("n", max=4096)
    p = et.Program("through")
    a, f = p.input("a", (n,), et.f32), p.scratch("f", (n,), et.f32)
    s, y = p.scratch("s", (n,), et.f32), p.output("y", (2,), et.f32)
    rows = lambda i: slice(i * T, i * T + T)
    p.call(mix1, name="first", grid=(n.tiles(T),), reads=lambda i: a[rows(i)],
           writes=lambda i: f[rows(i)])
    p.call(mix1, name="second", grid=(n.tiles(T),), reads=lambda i: f[rows(i)],
           writes=lambda i: s[rows(i)])
    p.call(walk(T), name="walk", grid=(2,), reads=lambda i: (s[:], f[:]), writes=lambda i: y[i])
    state = passes(p)
    assert [w.event for w in waits_of(state, "walk", chunked=False)] == ["first_done_2"]
    assert [w.event for w in waits_of(state, "walk", chunked=True)] == ["second_done"]


# ---- where nothing is won, or nothing is known ------------------------------------------------


def read_by(body, tile=T, region=lambda b, i: b[:, :], schedule="static", rows=1):
    """Waits of a task kind that reads what tiles of `tile` rows wrote."""
    n = et.dim("n", max=4096)
    p = et.Program("read_by")
    a, b = p.input("a", (n, rows), et.f32), p.scratch("b", (n, rows), et.f32)
    k, y = p.input("k", (4,), et.i32, bound=(0, 3)), p.output("y", (n, rows), et.f32)
    own = lambda i: slice(i * tile, i * tile + tile)
    p.call(mix1, name="part", grid=(n.tiles(tile),), reads=lambda i: a[own(i), :],
           writes=lambda i: b[own(i), :])
    p.call(body, name="take", grid=(n,), reads=lambda i: (region(b, i), k[:]),
           writes=lambda i: y[i, :])
    return waits_of(passes(p, schedule), "take", chunked=True)


def sliced(x, v):
    return x[v * T : v * T + T, :].sum()


@et.task
def plain(x, k, y):
    total = et.full((1,), 0.0, et.f32)
    for v in et.range((x.shape[0] + T - 1) // T):
        total[:] = total + sliced(x, v)
    y[:] = total[0]


@et.task
def nested(x, k, y):
    """A loop inside changes nothing: what the outer iteration reads is known."""
    total = et.full((1,), 0.0, et.f32)
    for v in et.range((x.shape[0] + T - 1) // T):
        for _ in et.range(2):
            total[:] = total + sliced(x, v)
    y[:] = total[0]


@et.task
def also_whole(x, k, y):
    total = et.full((1,), 0.0, et.f32)
    for v in et.range((x.shape[0] + T - 1) // T):
        total[:] = total + sliced(x, v)
    y[:] = total[0] + x.sum()


@et.task
def two_loops(x, k, y):
    total = et.full((1,), 0.0, et.f32)
    for v in et.range((x.shape[0] + T - 1) // T):
        total[:] = total + sliced(x, v)
    for v in et.range((x.shape[0] + T - 1) // T):
        total[:] = total + sliced(x, v)
    y[:] = total[0]


@et.task
def by_inner(x, k, y):
    total = et.full((1,), 0.0, et.f32)
    for _ in et.range(2):
        for v in et.range((x.shape[0] + T - 1) // T):
            total[:] = total + sliced(x, v)
    y[:] = total[0]


@et.task
def by_data(x, k, y):
    total = et.full((1,), 0.0, et.f32)
    for v in et.range(4):
        total[:] = total + sliced(x, k[v])
    y[:] = total[0]


@et.task
def all_at_first(x, k, y):
    """Iteration 0 reads all of it."""
    total = et.full((1,), 0.0, et.f32)
    for v in et.range(3):
        total[:] = total + x[v * T :, :].sum()
    y[:] = total[0]


def test_a_plain_walk_is_chunked_and_so_is_one_with_a_loop_inside():
    assert read_by(plain) and read_by(nested)


@pytest.mark.parametrize("body", [also_whole, two_loops, by_inner, by_data, all_at_first])
def test_a_body_that_reads_in_another_way_waits_at_its_start(body):
    assert not read_by(body)


def test_a_copied_operand_is_waited_for_at_the_start():
    assert not read_by(plain, region=lambda b, i: b.padded((1, 0), (1, 0), 0.0)[:, :])


def test_producers_that_are_not_tiled_along_the_walk_are_waited_for_at_the_start():
    assert not read_by(plain, tile=4096)


def test_push_waits_before_the_body_since_it_dispatches_whole_tasks():
    assert not read_by(plain, schedule="push")
    assert "note: waits for all slices of b before its body" in str(passes(chunks(), "push").plan)


def test_a_hand_tuned_body_may_read_when_it_likes():
    tuned = et.task(cpp="y.data[0] = x.data[0];")(plain.body)
    assert not read_by(tuned)


# ---- running -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    chunks, lambda: chunks(T, T // 2), lambda: chunks(T, 2 * T), lambda: chunks(6, 4), chunk_layers,
], ids=["equal", "half", "double", "misfit", "layers"])
@pytest.mark.core
def test_any_order_that_the_events_allow_gives_the_direct_result(make):
    state = passes(make())
    for n in SIZES:
        dims = {d.name: n if d.name == "n" else 3 for d in state.program.dims}
        arrays = make_arrays(state.program, dims)
        want = run_direct(state.program, dims, arrays)
        for order, seed in (*ORDERS, (Order.program, 0), (Order.random, n)):
            got, report = run_interp(state.plan, dims, arrays, order, seed)
            assert report.ok, report.error()
            assert not report.unneeded
            for name in {"x", "y"} & set(want):
                assert np.array_equal(got[name], want[name])


def test_a_chunk_is_read_before_the_last_producer_has_run():
    state = passes(chunks())
    dims = {"n": 3 * T}
    memory = make_memory(state.program, dims, make_arrays(state.program, dims))
    last = Task("part", (2,))
    machine = Machine(state.plan, dims, Execution(memory), ReadyQueue(Order.program, 0, last))
    machine.start()
    while (id := machine.ready.pop()) is not None:
        machine.execute(id)
    trace = machine.log
    seen = [(trace.tasks[a.id], a.mode, a.footprint.spans[0].bounds) for a in trace.accesses
            if a.footprint.tensor == "b"]
    reader = Task("walk", (0,))
    wrote = seen.index((last, Mode.write, (2 * T, 3 * T)))
    assert seen.index((reader, Mode.read, (0, T))) < wrote
    assert seen.index((reader, Mode.read, (T, 2 * T))) < wrote
    assert seen.index((reader, Mode.read, (2 * T, 3 * T))) > wrote


# ---- faults --------------------------------------------------------------------------------


def changed(state: State, change) -> State:
    """The chunk waits of `walk` as `change` gives them (None: dropped)."""
    assert state.derived is not None
    waits = tuple(
        c
        for w in state.derived.waits["walk"]
        for c in (change(w) if w.loop is not None else w,)
        if c is not None
    )
    return replace(state, derived=replace(state.derived, waits={
        **state.derived.waits, "walk": waits}))


def one_back(wait: Wait) -> Wait:
    """Iteration v waits for what iteration v - 1 needs."""
    v = Var(f"%{wait.loop.var}")
    guard = compare("<=", Const(1), v)
    return replace(wait, cells=tuple(
        replace(n, index=(add(v, Const(-1)),), guards=(guard,)) for n in wait.cells))


def only_first(wait: Wait) -> Wait:
    v = Var(f"%{wait.loop.var}")
    guard = compare("<=", v, Const(0))
    return replace(wait, cells=tuple(replace(n, guards=(guard,)) for n in wait.cells))


@pytest.mark.parametrize(("change", "first", "iteration"), [
    (lambda w: None, {"n": 1}, None), (one_back, {"n": 1}, 0), (only_first, {"n": 5}, 1),
], ids=["dropped", "shifted", "first only"])
def test_a_chunk_wait_that_is_missing_is_refuted_with_a_witness(change, first, iteration):
    bad = changed(passes(chunks()), change)
    report = verify(bad.program, bad.derived)
    assert report.status == "refuted"
    (problem,) = report.problems
    assert problem.kind is Kind.uncovered_read
    assert dict(problem.witness.dims) == first and problem.witness.tensor == "b"
    assert [t.call for t in problem.witness.tasks] == ["part", "walk"]
    if iteration is not None:
        assert f"in iteration {iteration} of its loop" in problem.message
    arrays = make_arrays(bad.program, first)
    report = run_interp(plan_with(bad, bad.derived), first, arrays, Order.random, 1, debug=False)[1]
    pair = tuple(Task(t.call, tuple(v for _, v in t.coords)) for t in problem.witness.tasks)
    assert pair in {(r.first, r.second) for r in report.races}


def test_waits_of_earlier_iterations_count():
    """Iteration v may lean on what iteration v - 1 has waited for."""
    def early(wait: Wait) -> Wait:
        v = Var(f"%{wait.loop.var}")
        size = next(e for e in state.derived.events if e.name == "part_done").shape[0]
        inside = compare("<=", add(v, Const(2)), size)
        first = compare("<=", v, Const(0))
        ahead = replace(wait.cells[0], index=(add(v, Const(1)),), guards=(inside,))
        return replace(wait, cells=(replace(wait.cells[0], guards=(first,)), ahead))

    state = passes(chunks())
    legal = changed(state, early)
    assert verify(legal.program, legal.derived).ok
    for order, seed in ORDERS:
        dims = {"n": 13}
        plan = plan_with(legal, legal.derived)
        assert run_interp(plan, dims, make_arrays(state.program, dims), order, seed)[1].ok
