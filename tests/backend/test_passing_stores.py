"""Values that are stored and folded: where many are folded by several threads each, an element is
stored by the thread that folds it, without a tile and a loop of its own."""

from __future__ import annotations

import pytest
from backend.test_cuda_emulated import arrays_of, assert_close
from support.backends import run_direct
from support.emulated import emulated_kernel
from support.streams import plan_of

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS

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
def twice(a, b, y, at):
    y[:] = found = a * b[:, None]
    at[:] = et.argmax(found) + et.argmax(found + 1.0)


@et.task
def unused(a, b, y, at):
    y[:] = found = a * b[:, None]
    et.argmax(found)
    at[:] = et.full((at.shape[0],), 7, et.i32)


@et.task
def replaced(a, b, y, at):
    y[:] = found = a * b[:, None]
    y[:] = a
    at[:] = et.argmax(found)


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


@et.task
def down(a, b, y, at):
    y[:] = found = a * b[:, None]
    at[:] = found.sum(axis=0)[: at.shape[0]].cast(et.i32)


def folded(body=argmax_of, y=et.f32, rows: int | None = None) -> et.Program:
    p = et.Program("folded")
    n = et.dim("n", max=64) if rows is None else rows
    a, b = p.input("a", (n, WIDE), et.f32), p.input("b", (n,), et.f32)
    found, at = p.output("y", (n, WIDE), y), p.output("at", (n,), et.i32)
    p.call(body, grid=(1,), reads=lambda i: (a[:, :], b[:]),
           writes=lambda i: (found[:, :], at[:]))
    return p


@pytest.mark.parametrize("body", [argmax_of, sum_of, twice, unused, replaced, filled_first,
                                  after_a_loop])
def test_what_is_stored_on_its_way_is_right(body) -> None:
    plan = plan_of(folded(body))
    with emulated_kernel(plan, 2) as kernel:
        for n in (1, 2, 17, 31, 64):
            got = arrays_of(plan, {"n": n}, n)
            wanted = run_direct(plan.program, {"n": n}, got)
            kernel.launch({"n": n}, got)
            assert_close(got, wanted, f"n = {n}")


def test_what_goes_to_another_part_of_the_same_tensor_stays() -> None:
    @et.task
    def with_edge(a, b, y, edge, at):
        y[:] = found = a * b[:, None]
        edge[:] = a[:, 0:1] * 0.0
        at[:] = et.argmax(found)

    p, n = et.Program("edge"), et.dim("n", max=64)
    a, b = p.input("a", (n, WIDE), et.f32), p.input("b", (n,), et.f32)
    y, at = p.output("y", (n, WIDE + 1), et.f32), p.output("at", (n,), et.i32)
    p.call(with_edge, grid=(1,), reads=lambda i: (a[:, :], b[:]),
           writes=lambda i: (y[:, 0:WIDE], y[:, WIDE : WIDE + 1], at[:]))
    plan = plan_of(p)
    with emulated_kernel(plan, 2) as kernel:
        got = arrays_of(plan, {"n": 40}, 1)
        wanted = run_direct(plan.program, {"n": 40}, got)
        kernel.launch({"n": 40}, got)
    assert_close(got, wanted, "edge")
    assert not got["y"][:, WIDE].any() and got["y"][:, WIDE - 1].any()


def test_a_fold_stores_what_it_folds() -> None:
    for body in (argmax_of, sum_of):
        text = generate(plan_of(folded(body))).text
        assert text.count("et::passed(y.data[") == 1 and "y.data[" in text
        assert text.count("y.data[") == 1  # no loop that stores


@pytest.mark.parametrize("program", [
    folded(twice), folded(unused), folded(replaced), folded(down), folded(y=et.bf16),
    folded(rows=4),
], ids=["another reads it", "no fold", "another goes there", "not the last axis", "rounded", "few"])
def test_others_are_stored_by_themselves(program: et.Program) -> None:
    assert "et::passed(" not in generate(plan_of(program)).text


def test_words_that_carry_flags_are_not_stored_by_folds() -> None:
    """Those of the search among probabilities, which are few in a small model."""
    program = llama(PRESETS["tiny-qwen3"], Weights("cuda", et.bf16), tokens=16, sampling=True)
    passed = [line for line in generate(plan_of(program)).text.split("\n") if "et::passed(" in line]
    assert passed and not any("_words[" in line for line in passed)
