"""Where barriers stand, and where none is needed."""

from __future__ import annotations

from dataclasses import replace

from eventtensor.ir.expr import Const, Var, add, mul
from eventtensor.kernel_ir import buffers as bf
from eventtensor.kernel_ir import scalar_values as v
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.distributions import HalfWarp
from eventtensor.kernel_ir.scopes import Scope
from eventtensor.kernel_passes.insert_barriers import insert_barriers
from tests.support.kernels import INDEX, N, assign, at, body, given, shown, vector, without

X, V, Y = vector("x"), vector("v"), vector("y")
BACK = add(add(N, Const(-1)), mul(Const(-1), Var("$i0")))


def barriers(f: st.Function) -> int:
    return shown(insert_barriers(f)).count("barrier role")


def test_a_barrier_stands_before_what_reads_other_threads_elements() -> None:
    f = body(given(X), assign(V, at(X)), assign(Y, at(V, BACK)))
    assert (
        shown(insert_barriers(f))
        == """\
waits, converged role .. role
  view x: f32[n] in arena
elements (i0 < n) linear
  v[i0] = x[i0]
barrier role
elements (i0 < n) linear
  y[i0] = v[-i0 + n - 1]
barrier role"""
    )


def test_own_elements_need_no_barrier_but_the_last() -> None:
    assert barriers(body(given(X), assign(V, at(X)), assign(Y, at(V)))) == 1


def test_a_body_that_touches_nothing_needs_none() -> None:
    assert barriers(body(given(X), st.LetIndex("$e1", N))) == 0


def test_a_write_behind_a_read_of_all_threads_waits_for_them() -> None:
    scalar = st.Let("%1", at(X, Const(0)))
    assert barriers(body(given(X), scalar, assign(X, at(X)))) == 2


def test_waits_that_end_converged_stand_for_a_barrier() -> None:
    waits = st.Waits(("wait",), Scope.thread, Scope.role)
    assert barriers(body(given(X), assign(V, at(X)), waits, assign(Y, at(V, BACK)))) == 1


def test_waits_that_may_be_skipped_do_not() -> None:
    waits = st.Waits(("if (l == 0) wait",), Scope.thread, Scope.thread)
    assert barriers(body(given(X), assign(V, at(X)), waits, assign(Y, at(V, BACK)))) == 2


def test_what_is_pending_at_the_end_of_an_iteration_meets_its_begin() -> None:
    loop = st.For("%3", N, (assign(Y, at(V, BACK)), assign(V, at(X))))
    f = insert_barriers(body(given(X, V), loop))
    (inner,) = (s for s in f.body if isinstance(s, st.For))
    assert [type(s).__name__ for s in inner.body] == ["Barrier", "Elements", "Barrier", "Elements"]


def test_a_loop_of_own_elements_needs_none_inside() -> None:
    f = insert_barriers(body(given(X, V), st.For("%3", N, (assign(V, at(X)),))))
    (inner,) = (s for s in f.body if isinstance(s, st.For))
    assert inner.body == (assign(V, at(X)),)


def test_memory_that_an_iteration_gives_back_is_anybodys() -> None:
    """The tile of the next iteration may lie elsewhere, where another thread still reads."""
    other = vector("w")
    loop = st.For(
        "%3", N, (st.Allocate(V), assign(V, at(X)), st.Allocate(other), assign(other, at(V)))
    )
    f = insert_barriers(body(given(X), loop))
    (inner,) = (s for s in f.body if isinstance(s, st.For))
    assert [type(s).__name__ for s in inner.body] == [
        "Allocate",
        "Barrier",
        "Elements",
        "Allocate",
        "Elements",
    ]


def test_a_loop_that_may_not_run_settles_nothing() -> None:
    skipped = st.For("%3", N, (st.Barrier(Scope.role),))
    f = body(given(X), assign(V, at(X)), skipped, assign(Y, at(V, BACK)))
    kinds = [type(s).__name__ for s in insert_barriers(f).body]
    assert kinds == ["Waits", "Elements", "For", "Barrier", "Elements", "Barrier"]


def test_two_atomic_adds_need_no_order() -> None:
    add_one = st.Elements(
        (st.Axis("$i0", N),),
        assign(V, at(X)).distribution,
        (st.Accumulate(V, (Const(0),), v.Literal(1.0, X.buffer.dtype), True),),
    )
    assert barriers(body(given(X, V), add_one, add_one)) == 1


def test_the_pass_gives_back_what_was_taken_away() -> None:
    f = insert_barriers(body(given(X), assign(V, at(X)), assign(Y, at(V, BACK))))
    assert insert_barriers(without(without(f, st.Barrier), st.Barrier)) == f


def test_rows_that_a_store_goes_by_are_complete_before_it() -> None:
    """Each thread goes by the rows of others: a store reads the table of its view."""
    rows = vector("rows")
    out = replace(Y, tables=(bf.Table("rows", Const(0)),))
    assert barriers(body(given(X), assign(rows, at(X)), assign(out, at(X)))) == 2
    assert barriers(body(given(X), assign(rows, at(X)), assign(Y, at(X)))) == 1


def test_what_one_thread_of_a_half_warp_stores_the_others_read_behind_a_barrier() -> None:
    """Also at the index that they share: nothing else orders the lanes of a warp."""
    axes = (st.Axis("$i0", N),)
    elected = st.Elect(Scope.half_warp, (st.Store(V, (INDEX,), at(X)),))
    folded = v.Fold("sum", Scope.half_warp, "$k1", N, at(V))
    stored = st.Elements(axes, HalfWarp(), (elected,))
    read = st.Elements(axes, HalfWarp(), (st.Let("%1", folded),))
    assert barriers(body(given(X), stored, read)) == 2
    assert barriers(body(given(X), stored, stored)) == 1
