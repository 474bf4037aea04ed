"""Values that are stored and folded. A fold that several threads do goes straight to its place,
where nothing else goes there and nobody else reads it."""

from __future__ import annotations

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from tests.backend.test_cuda_emulated import arrays_of, assert_close
from tests.support.backends import run_direct
from tests.support.emulated import emulated_kernel
from tests.support.streams import plan_of

WIDE = 72  # elements of a fold


@et.task
def argmax_of(a, b, y, at):
    y[:] = found = a * b[:, None]
    at[:] = et.argmax(found)


@et.task
def sum_of(a, b, y, at):
    y[:] = found = a * b[:, None]
    at[:] = found.sum(axis=1).cast(et.i32)


@et.task
def filled_first(a, b, y, at):
    found = et.argmax(a * b[:, None])
    at[:] = et.full((at.shape[0],), 7, et.i32)
    y[:], at[:] = a, found


@et.task
def after_a_loop(a, b, y, at):
    kept = et.zeros((4, WIDE))
    for k in et.range(4):
        kept[k] = a[0] * b[0] + 1.0
    y[:] = a + kept.sum(axis=0)[None, :]
    at[:] = et.argmax(a)


def folded(body=argmax_of) -> et.Program:
    p, n = et.Program("folded"), et.dim("n", max=64)
    a, b = p.input("a", (n, WIDE), et.f32), p.input("b", (n,), et.f32)
    found, at = p.output("y", (n, WIDE), et.f32), p.output("at", (n,), et.i32)
    p.call(body, grid=(1,), reads=lambda i: (a[:, :], b[:]), writes=lambda i: (found[:, :], at[:]))
    return p


@pytest.mark.parametrize("body", [argmax_of, sum_of, filled_first, after_a_loop])
def test_what_is_stored_and_folded_is_right(body) -> None:
    plan = plan_of(folded(body))
    with emulated_kernel(plan, 2) as kernel:
        for n in (1, 17, 64):
            got = arrays_of(plan, {"n": n}, n)
            wanted = run_direct(plan.program, {"n": n}, got)
            kernel.launch({"n": n}, got)
            assert_close(got, wanted, f"n = {n}")


def test_a_fold_goes_straight_to_its_place_where_nothing_else_goes() -> None:
    def stores_at_once(body) -> bool:
        words = " ".join(generate(plan_of(folded(body))).text.split())
        return "if (t1.is_leader()) { at.data[" in words

    assert stores_at_once(argmax_of)
    assert not stores_at_once(filled_first)
