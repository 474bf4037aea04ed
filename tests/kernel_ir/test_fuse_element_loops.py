"""Which neighbouring loops become one, and what that looks like."""

from __future__ import annotations

import pytest

from eventtensor.ir.expr import Const, add, mul
from eventtensor.ir.expr import Var as IndexVar
from eventtensor.kernel_ir import scalar_values as v
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.distributions import HalfWarp
from eventtensor.kernel_ir.scopes import Scope
from eventtensor.kernel_passes.fuse_element_loops import fuse_element_loops
from tests.support.kernels import N, assign, at, body, given, shown, vector

X, V, Y = vector("x"), vector("v"), vector("y")
BACK = add(add(N, Const(-1)), mul(Const(-1), IndexVar("$i0")))
TWICE = assign(V, v.Binary("add", at(X), at(X)))


def test_a_chain_of_loops_is_one_loop() -> None:
    f = body(given(X), TWICE, assign(Y, v.Unary("exp", at(V))))
    assert (
        shown(fuse_element_loops(f))
        == """\
waits, converged role .. role
  view x: f32[n] in arena
elements (i0 < n) linear
  v[i0] = add(x[i0], x[i0])
  y[i0] = exp(v[i0])"""
    )


def test_loops_in_a_loop_are_fused_too() -> None:
    f = body(given(X), st.For("%3", N, (TWICE, assign(Y, at(V)))))
    (loop,) = (s for s in fuse_element_loops(f).body if isinstance(s, st.For))
    assert len(loop.body) == 1


SHORT = vector("y", 7)


@pytest.mark.parametrize(
    "second",
    [
        assign(Y, at(V, BACK)),  # reads what other threads have written
        assign(SHORT, at(vector("v", 7))),
        st.Elements(TWICE.axes, HalfWarp(), TWICE.body),
    ],
    ids=["other index", "other extent", "other distribution"],
)
def test_loops_that_data_crosses_stay_apart(second: st.Elements) -> None:
    f = body(given(X, Y), TWICE, second)
    assert fuse_element_loops(f) == f


def test_what_is_read_at_the_own_index_alone_may_be_overwritten() -> None:
    fused = fuse_element_loops(body(given(X, Y), TWICE, assign(X, at(Y))))
    assert sum(isinstance(s, st.Elements) for s in fused.body) == 1


def test_what_is_read_elsewhere_is_not_overwritten_in_the_same_loop() -> None:
    f = body(given(X, Y), assign(V, at(X, BACK)), assign(X, at(Y)))
    assert fuse_element_loops(f) == f


def test_a_statement_between_keeps_loops_apart() -> None:
    f = body(given(X), TWICE, st.Barrier(Scope.role), assign(Y, at(V)))
    assert fuse_element_loops(f) == f
