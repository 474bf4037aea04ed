"""Check 3: a barrier stands between conflicting accesses. Broken bodies have a legal neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eventtensor.errors import Unordered
from eventtensor.ir.expr import Const, Node, add, mul
from eventtensor.ir.tensor import DType
from eventtensor.kernel_ir import buffers as bf
from eventtensor.kernel_ir import scalar_values as v
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.distributions import HalfWarp
from eventtensor.kernel_ir.scopes import Scope
from eventtensor.kernel_ir.verify.conflicts import check_conflicts
from tests.support.kernels import (
    INDEX,
    KERNELS,
    N,
    assign,
    at,
    body,
    edited,
    given,
    kernel,
    vector,
    without,
)

X, V, Y = vector("x"), vector("v"), vector("y")
BARRIER = st.Barrier(Scope.role)
BACK = add(add(N, Const(-1)), mul(Const(-1), INDEX))


def barriers(block: st.Block) -> int:
    return sum(isinstance(s, st.Barrier) + barriers(getattr(s, "body", ())) for s in block)


ALL = [(name, k) for name in KERNELS for k in range(barriers(kernel(name).body))]


@pytest.mark.parametrize(("name", "number"), ALL)
def test_no_barrier_can_be_left_out(name: str, number: int) -> None:
    with pytest.raises(Unordered) as found:
        check_conflicts(without(kernel(name), st.Barrier, number))
    assert "threads may still" in found.value.reason and found.value.path


@pytest.mark.parametrize(("name", "number"), ALL)
def test_a_barrier_of_a_warp_is_too_weak(name: str, number: int) -> None:
    def scoped(scope: Scope) -> st.Function:
        return edited(kernel(name), st.Barrier, lambda s: (st.Barrier(scope),), number)

    with pytest.raises(Unordered):
        check_conflicts(scoped(Scope.warp))
    check_conflicts(scoped(Scope.block))


def indexed(index: Node) -> Callable[[st.Stmt], st.Block]:
    """Stores of vectors go to other elements."""

    def edit(s: st.Stmt) -> st.Block:
        assert isinstance(s, st.Store)
        return (replace(s, index=(index,)),)

    return edit


def reads(view: bf.View, index: Node) -> Callable[[st.Stmt], st.Block]:
    def edit(s: st.Stmt) -> st.Block:
        assert isinstance(s, st.Store)
        return (replace(s, value=v.Binary("add", s.value, v.Element(view, (index,)))),)

    return edit


def carried_tile(f: st.Function) -> bf.View:
    return next(s.view for s in f.body if isinstance(s, st.Allocate))


def gathered(serial: frozenset[int]) -> st.Function:
    """Rows of v that a table names."""
    rows = bf.View("v", V.buffer, (N,), (Const(0),), (bf.Table("rows", Const(0)),))
    loop = replace(assign(rows, at(X)), serial=serial)
    return body(given(X, V), loop, BARRIER)


def shared(block: st.Block) -> st.Function:
    return body(given(X), st.Elements((st.Axis("$i0", N),), HalfWarp(), block), BARRIER)


STORE = st.Store(V, (INDEX,), at(X))
FIRST = st.Let("$b1", at(V))
CARRIED, SOFTMAX = kernel("carried"), kernel("softmax")
TILE = carried_tile(CARRIED)
FREED = (st.Allocate(V), assign(V, at(X)), st.Allocate(Y), assign(Y, at(V)))

# name: (broken, its legal neighbour, a part of the reason)
CASES: dict[str, tuple[st.Function, st.Function, str]] = {
    "all threads store to one element": (
        edited(CARRIED, st.Store, indexed(Const(0))),
        CARRIED,
        "one thread may",
    ),
    "a loop reads what other threads store in it": (
        edited(CARRIED, st.Store, reads(TILE, Const(3)), 2),
        edited(CARRIED, st.Store, reads(TILE, INDEX), 2),
        "one thread may",
    ),
    "elements of another thread without a barrier": (
        body(given(X), assign(V, at(X)), assign(Y, at(V, BACK)), BARRIER),
        body(given(X), assign(V, at(X)), assign(Y, at(V)), BARRIER),
        "threads may still",
    ),
    "what all threads read is overwritten": (
        body(given(X), st.Let("%1", at(X, Const(0))), assign(X, at(X)), BARRIER),
        body(given(X), st.Let("%1", at(X, Const(0))), BARRIER, assign(X, at(X)), BARRIER),
        "threads may still",
    ),
    "all threads of a role store": (
        body(given(X), STORE, BARRIER),
        body(given(X), st.Elect(Scope.role, (STORE,)), BARRIER),
        "one thread may",
    ),
    "a half-warp stores the element that it shares": (
        shared((STORE,)),
        shared((st.Elect(Scope.half_warp, (STORE,)),)),
        "one thread may",
    ),
    "gathered rows that several threads go over": (
        gathered(frozenset()),
        gathered(frozenset({0})),
        "gathered rows",
    ),
    "loads ahead of the stores that make them": (
        body(given(X, V), replace(assign(V, v.Name("$b1", DType.f32)), first=(FIRST,)), BARRIER),
        body(given(X, V), replace(assign(Y, v.Name("$b1", DType.f32)), first=(FIRST,)), BARRIER),
        "is loaded for all elements before",
    ),
    "memory of the last iteration": (
        body(given(X), st.For("%3", N, FREED), BARRIER),
        body(given(X), st.For("%3", N, (BARRIER, *FREED)), BARRIER),
        "memory given back",
    ),
    "memory that a loop has given back": (
        body(
            given(X),
            st.For("%3", N, (BARRIER, *FREED)),
            st.Allocate(W := vector("w")),
            assign(W, at(X)),
            BARRIER,
        ),
        body(
            given(X),
            st.For("%3", N, (BARRIER, *FREED)),
            BARRIER,
            st.Allocate(W),
            assign(W, at(X)),
            BARRIER,
        ),
        "memory given back",
    ),
    "a barrier that a branch may skip": (
        body(
            given(X),
            assign(V, at(X)),
            st.If(v.Literal(True, DType.bool_), (BARRIER,)),
            assign(Y, at(V, BACK)),
            BARRIER,
        ),
        body(given(X), assign(V, at(X)), BARRIER, assign(Y, at(V, BACK)), BARRIER),
        "threads may still",
    ),
    "waits that may be skipped": (
        body(
            given(X),
            assign(V, at(X)),
            st.Waits((), Scope.thread, Scope.thread),
            assign(Y, at(V, BACK)),
            BARRIER,
        ),
        body(
            given(X),
            assign(V, at(X)),
            st.Waits((), Scope.thread, Scope.role),
            assign(Y, at(V, BACK)),
            BARRIER,
        ),
        "threads may still",
    ),
    "plain adds to one element": (
        edited(
            kernel("added"), st.Accumulate, lambda s: (replace(s, index=(Const(0),), atomic=False),)
        ),  # type: ignore[call-arg]
        edited(kernel("added"), st.Accumulate, lambda s: (replace(s, index=(Const(0),)),)),  # type: ignore[call-arg]
        "one thread may",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_accesses_without_order_are_refused(case: str) -> None:
    broken, _, reason = CASES[case]
    with pytest.raises(Unordered) as found:
        check_conflicts(broken)
    assert reason in found.value.reason and found.value.path


@pytest.mark.parametrize("case", CASES)
def test_its_legal_neighbour_passes(case: str) -> None:
    check_conflicts(CASES[case][1])


@pytest.mark.parametrize("name", KERNELS)
def test_lowered_bodies_pass(name: str) -> None:
    check_conflicts(kernel(name))


def test_a_worker_of_one_thread_meets_nobody() -> None:
    check_conflicts(kernel("softmax", "cpu"))


def test_a_refusal_shows_the_statement() -> None:
    with pytest.raises(Unordered) as found:
        check_conflicts(without(SOFTMAX, st.Barrier))
    text = str(found.value)
    assert text.startswith("ET232: body 'go' at ") and "elements (i0 < n, i1 < 128) linear" in text
    assert "v5[i0, i1] = exp" in text
