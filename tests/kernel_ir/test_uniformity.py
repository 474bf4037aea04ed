"""Check 1: what threads must reach together they do. Each broken body has a legal neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eventtensor.errors import NotConverged
from eventtensor.ir.expr import Const, Var
from eventtensor.ir.tensor import DType
from eventtensor.kernel_ir import scalar_values as v
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.distributions import Linear
from eventtensor.kernel_ir.scopes import Scope
from eventtensor.kernel_ir.verify.uniformity import check_uniformity
from tests.support.kernels import INDEX, KERNELS, N, assign, at, body, edited, given, kernel, vector

BARRIER = st.Barrier(Scope.role)
X, V = vector("x"), vector("v")
ODD = v.Binary("lt", v.Number(INDEX, DType.i64), v.Literal(1, DType.i64))
EVEN = v.Binary("lt", v.Number(N, DType.i64), v.Literal(1, DType.i64))


def in_elements(s: st.Stmt) -> st.Elements:
    return replace(assign(V, at(X)), body=(s,))


def counted(times: st.Stmt, extent: Var) -> st.Function:
    """A loop whose extent is read from what a loop has just written, behind a barrier or not."""
    number = st.Let("%1", v.Cast(at(V, Const(0)), DType.i64))
    loop = st.For(extent.name, Var("%1"), (BARRIER,))
    return body(given(X), assign(V, at(X)), times, number, loop)


def halved(sharers: Scope) -> Callable[[st.Stmt], st.Block]:
    """Folds of a loop, by other threads."""

    def edit(s: st.Stmt) -> st.Block:
        assert isinstance(s, st.Let) and isinstance(s.value, v.Fold)
        return (replace(s, value=replace(s.value, shared=sharers)),)

    return edit


def linear(s: st.Stmt) -> st.Block:
    assert isinstance(s, st.Elements)
    return (replace(s, distribution=Linear()),)


def release_in(scope: st.Stmt) -> st.Function:
    return body(given(X), replace(scope, body=(st.ReleaseStages(),)))  # type: ignore[call-arg]


WAITS = st.Waits(("wait",), Scope.thread, Scope.role)
SUM = v.Fold("sum", Scope.half_warp, "$k1", N, at(X, Var("$k1")))
NOTHING = st.LetIndex("$e1", N)

# name: (broken, its legal neighbour, a part of the reason)
CASES: dict[str, tuple[st.Function, st.Function, str]] = {
    "a barrier among elements": (
        body(given(X), in_elements(BARRIER)),
        body(given(X), assign(V, at(X)), BARRIER),
        "needs all threads of a role",
    ),
    "a barrier under a condition of a thread": (
        body(
            st.Let("%1", v.Number(Var("$t"), DType.i64)),
            st.If(v.Binary("lt", v.Name("%1", DType.i64), v.Literal(1, DType.i64)), (BARRIER,)),
        ),
        body(st.If(EVEN, (BARRIER,))),
        "needs all threads of a role",
    ),
    "a loop as often as a thread says": (
        counted(NOTHING, Var("%2")),
        counted(BARRIER, Var("%2")),
        "needs all threads of a role",
    ),
    "half-warps fold where each thread has an element": (
        edited(kernel("softmax"), st.Elements, linear),
        kernel("softmax"),
        "a value that a half_warp makes together",
    ),
    "a broadcast among elements": (
        body(given(X), in_elements(st.Let("%1", v.Broadcast(Scope.half_warp, SUM)))),
        body(given(X), st.Let("%1", v.Broadcast(Scope.half_warp, SUM))),
        "a value that a half_warp makes together",
    ),
    "shared elements in one thread's code": (
        body(given(X), st.Elect(Scope.role, (assign(V, at(X)),))),
        body(given(X), assign(V, at(X))),
        "needs all threads of a role",
    ),
    "memory that one thread takes": (
        body(given(X), st.Elect(Scope.role, (st.Allocate(V),))),
        body(given(X), st.Allocate(V)),
        "needs all threads of a role",
    ),
    "memory of a size that varies": (
        body(
            given(X),
            assign(V, at(X)),
            st.Let("%1", v.Cast(at(V, Const(0)), DType.i64)),
            st.Allocate(vector("w", Var("%1"))),
        ),
        body(
            given(X),
            assign(V, at(X)),
            BARRIER,
            st.Let("%1", v.Cast(at(V, Const(0)), DType.i64)),
            st.Allocate(vector("w", Var("%1"))),
        ),
        "the size of memory",
    ),
    "an extent that varies": (
        body(
            given(X),
            assign(V, at(X)),
            st.Let("%1", v.Cast(at(V, Const(0)), DType.i64)),
            assign(vector("w", Var("%1")), at(X)),
        ),
        body(
            given(X),
            st.Let("%1", v.Cast(at(X, Const(0)), DType.i64)),
            assign(vector("w", Var("%1")), at(X)),
        ),
        "an extent of shared elements",
    ),
    "waits under a condition of a thread": (
        body(given(X), in_elements(WAITS)),
        body(given(X), st.If(EVEN, (WAITS,))),
        "needs all threads of a role",
    ),
    "stages given back by one thread": (
        release_in(st.Elect(Scope.role, ())),
        release_in(st.If(EVEN, ())),
        "needs all threads of a warp",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_parts_threads_is_refused(case: str) -> None:
    broken, _, reason = CASES[case]
    with pytest.raises(NotConverged) as found:
        check_uniformity(broken)
    assert reason in found.value.reason and found.value.path


@pytest.mark.parametrize("case", CASES)
def test_its_legal_neighbour_passes(case: str) -> None:
    check_uniformity(CASES[case][1])


@pytest.mark.parametrize("name", KERNELS)
def test_lowered_bodies_pass(name: str) -> None:
    check_uniformity(kernel(name))


def test_a_thread_alone_is_always_together() -> None:
    broken, _, _ = CASES["a loop as often as a thread says"]
    check_uniformity(replace(broken, threads=1))
