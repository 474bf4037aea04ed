"""The kernels of a runner on a GPU: which kernel takes which step, how they are built, that they
share memory, and what an error of one does to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from threading import Barrier, Event, current_thread
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from eventtensor.errors import BadOption, BadPacking, CompileFailed, KernelClosed, StuckWait
from eventtensor.llm.model.tile_sizes import Layout
from eventtensor.llm.runner.runner import DTYPES, Runner, StepToken, TokenChoice, layout_of
from eventtensor.llm.weights.model_source import open_model
from eventtensor.llm.weights.weight_packing import pack_weights
from tests.models.emulated_runner import emulated_runner
from tests.models.fake_kernels import FakeKernel, fake_kernels
from tests.models.tiny_models import Session, pairs, random_requests, relative
from tests.support.fake_driver import FakeDriver, installed

MODEL = open_model("random:tiny-llama")
WEIGHTS = {layout: pack_weights(MODEL.checkpoint, layout, DTYPES["bf16"].numpy)
           for layout in ("cuda", "cuda_many")}
PATIENCE_S = 20.0


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    found = FakeDriver()
    with installed(lambda: found):
        yield found


def make(**options: Any) -> Runner:
    asked = {k: options[k] for k in ("rows", "batch_invariant") if k in options}
    return Runner(MODEL.config, WEIGHTS[layout_of("cuda", **asked)], target="cuda", pages=8,
                  positions=512, requests=3, **options)


def prompt(count: int) -> list[StepToken]:
    return [StepToken(0, 5, k) for k in reversed(range(count))]


# ---- which kernel takes which step -----------------------------------------------------------

STEPS: list[tuple[list[StepToken], list[list[int]], int]] = [
    (prompt(1), [[0]], 1),  # one row
    (prompt(2), [[0]], 1),  # one that gets a token, one that does not
    ([StepToken(0, 5, 0), StepToken(1, 5, 0)], [[0], [1]], 2),
    (prompt(128), [[0, 1]], 1),
    ([StepToken(1, 7, 130)], [[0], [1, 2, 3]], 1),  # one row, far into its request
]


@pytest.mark.parametrize(("options", "takers"), [
    ({}, [1, 128, 128, 128, 1]),
    ({"batch_invariant": True}, [128] * 5),
    ({"rows": 128, "sampling": True}, [1, 128, 128, 128, 1]),
], ids=["both", "batch invariant", "sampling"])
def test_steps_of_one_row_have_a_kernel_of_their_own(
    driver: FakeDriver, options: dict[str, Any], takers: list[int]
) -> None:
    with fake_kernels() as kernels, closing(make(**options)) as runner:
        found = []
        for rows, tables, chosen in STEPS:
            before = {k.rows: k.launches for k in kernels}
            assert runner.step(rows, tables, chosen).tokens.tolist() == [
                r.token + 1 for r in rows[:chosen]]
            found += [k.rows for k in kernels if k.launches > before[k.rows]]
        assert found == takers
        assert {k.rows for k in kernels} == set(takers)


WIDE = open_model("random:tiny-qwen3")  # whose keys flow


def decoding(count: int) -> tuple[list[StepToken], list[list[int]], int]:
    return [StepToken(r, 5, 0) for r in range(count)], [[r] for r in range(count)], count


@pytest.mark.parametrize(("options", "most"), [
    ({}, 64), ({"rows": 16}, 16), ({"batch_invariant": True}, 0), ({"dtype": "f32"}, 0)])
def test_few_rows_that_have_a_request_each_have_a_kernel_of_their_own(
    driver: FakeDriver, options: dict[str, Any], most: int
) -> None:
    """Not those of one request, nor with rows that get no token."""
    two = [StepToken(0, 5, 0), StepToken(0, 6, 1)]
    steps = [(decoding(2), True), (decoding(8), True), (decoding(1), False),
             ((two, [[0]], 2), False), ((two[::-1], [[0]], 1), False)]
    dtype = options.get("dtype", "bf16")
    layout = layout_of("cuda", dtype, batch_invariant=options.get("batch_invariant", False))
    weights = pack_weights(WIDE.checkpoint, layout, DTYPES[dtype].numpy)
    with fake_kernels() as kernels, closing(Runner(
        WIDE.config, weights, target="cuda", pages=8, positions=512, requests=8, **options,
    )) as runner:
        assert [k.rows for k in kernels if k.decode_only] == [most][: most > 0]
        assert len(runner.kernels.all()) == len(kernels)
        for step, decode_only in steps:
            before = [k.launches for k in kernels]
            runner.step(*step)
            (taker,) = (k for k, n in zip(kernels, before, strict=True) if k.launches > n)
            assert taker.decode_only is (decode_only and most > 0), step


def test_a_runner_for_one_row_has_one_kernel(driver: FakeDriver) -> None:
    for options in ({"rows": 1}, {"rows": 1, "batch_invariant": True}):
        with fake_kernels() as kernels, closing(make(**options)) as runner:
            runner.step(prompt(1), [[0]])
            assert [k.rows for k in kernels] == [1] and kernels[0].launches == 1


@pytest.mark.parametrize("target", ("cpu", "interp"))
def test_threads_and_the_interpreter_have_one_kernel(target: str) -> None:
    weights = pack_weights(MODEL.checkpoint, "cpu", DTYPES["f32"].numpy)
    with fake_kernels() as kernels, closing(Runner(
        MODEL.config, weights, target=target, dtype="f32", pages=8, positions=512, requests=3,
    )):
        assert [k.rows for k in kernels] == [128]


def test_both_see_the_same_memory(driver: FakeDriver) -> None:
    with fake_kernels() as kernels, closing(make(sampling=True)) as runner:
        choice = (TokenChoice(0.5, 3),)
        for count in (1, 2, 2):  # the first and the last have the same turn
            runner.step(prompt(count), [[0]], 1, choice)
        many, one = (k.arrays for k in kernels)
        assert set(many) == set(one) >= {"w_qkv", "kv", "table", "token", "logits", "chosen"}
        assert {n: many[n].ctypes.data for n in many} == {n: one[n].ctypes.data for n in one}


# ---- how they are built ----------------------------------------------------------------------


def test_both_are_built_at_the_same_time_and_planned_one_by_one(driver: FakeDriver) -> None:
    together, me, planners = Barrier(2), current_thread(), []

    def build(kernel: FakeKernel) -> None:
        together.wait(PATIENCE_S)
        assert current_thread() is not me

    def plan(kernel: FakeKernel) -> None:
        planners.append(current_thread())

    with fake_kernels(build, plan), closing(make()) as runner:
        assert runner.ready(1) is not runner.ready(2)
    assert planners == [me, me]


def test_prompts_do_not_wait_for_the_kernel_of_one_row(driver: FakeDriver) -> None:
    wanted = Event()

    def build(kernel: FakeKernel) -> None:
        assert kernel.rows > 1 or wanted.wait(PATIENCE_S), "somebody waits for it"

    with fake_kernels(build) as kernels, closing(make()) as runner:
        runner.step(prompt(9), [[0]])
        wanted.set()
        runner.step(prompt(1), [[0]])
        assert [k.launches for k in kernels] == [1, 1]


# ---- errors ----------------------------------------------------------------------------------


def refusing(rows: int) -> Callable[[FakeKernel], None]:
    def build(kernel: FakeKernel) -> None:
        if kernel.rows == rows:
            raise CompileFailed(f"no kernel for {rows}")

    return build


def closed(runner: Runner, driver: FakeDriver) -> bool:
    for rows in (1, 2):
        with pytest.raises(KernelClosed):
            runner.step(prompt(rows), [[0]])
    return not driver.memory


def test_a_runner_whose_kernel_for_many_rows_fails_is_not_made(driver: FakeDriver) -> None:
    with fake_kernels(refusing(128)) as kernels, pytest.raises(CompileFailed, match="128"):
        make()
    assert [k.closed for k in kernels] == [False, True] and not driver.memory


def test_a_kernel_for_one_row_that_fails_closes_the_other(driver: FakeDriver) -> None:
    with fake_kernels(refusing(1)) as kernels:
        runner = make()
        runner.step(prompt(2), [[0]])
        with pytest.raises(CompileFailed, match="for 1"):
            runner.step(prompt(1), [[0]])
        assert kernels[0].closed and closed(runner, driver)


def test_a_program_that_cannot_be_planned_closes_the_other(driver: FakeDriver) -> None:
    with (
        fake_kernels(plan=refusing(1)) as kernels, pytest.raises(CompileFailed, match="for 1"),
    ):
        make()
    assert [k.closed for k in kernels] == [True]


@pytest.mark.parametrize("rows", (1, 2))
def test_a_kernel_that_fails_to_close_keeps_none_open(driver: FakeDriver, rows: int) -> None:
    def refuse() -> None:
        raise StuckWait("it goes on")

    with fake_kernels() as kernels:
        runner = make()
        runner.ready(1)
        stubborn = runner.ready(rows)
        with patch.object(stubborn, "close", refuse), pytest.raises(StuckWait):
            runner.close()
        assert all(k.closed for k in kernels if k is not stubborn) and not driver.memory


@pytest.mark.parametrize("rows", (1, 2))
def test_a_launch_that_fails_closes_both(driver: FakeDriver, rows: int) -> None:
    with fake_kernels() as kernels:
        runner = make()
        runner.step(prompt(3 - rows), [[0]])
        runner.ready(rows).failure = StuckWait("nothing moves")
        with pytest.raises(StuckWait):
            runner.step(prompt(rows), [[0]])
        assert all(k.closed for k in kernels) and closed(runner, driver)


def test_a_step_that_is_refused_closes_nothing(driver: FakeDriver) -> None:
    with fake_kernels() as kernels, closing(make()) as runner:
        with pytest.raises(BadOption, match="likeliest"):
            runner.step(prompt(1), [[0]], 1, [TokenChoice(0.5)])
        runner.step(prompt(1), [[0]])
        assert not any(k.closed for k in kernels)


@pytest.mark.parametrize("given, batch_invariant", [("cuda", True), ("cuda_many", False)])
def test_weights_that_are_packed_for_other_kernels_are_refused(
    driver: FakeDriver, given: Layout, batch_invariant: bool
) -> None:
    model = open_model("random:tiny-qwen3-moe")
    weights = pack_weights(model.checkpoint, given, DTYPES["bf16"].numpy)
    with pytest.raises(BadPacking, match="w_qkv has the shape"):
        Runner(model.config, weights, target="cuda", pages=8, positions=512,
               batch_invariant=batch_invariant)


def test_an_unknown_target_or_option_is_refused() -> None:
    with pytest.raises(BadOption, match="tpu"):
        Runner(MODEL.config, {}, target="tpu", pages=8, positions=512)
    with pytest.raises(TypeError, match="fast"):
        Runner(MODEL.config, {}, target="cpu", pages=8, positions=512, fast=True)


# ---- the real kernels, in the emulator -------------------------------------------------------


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # torch in bf16, where there is none
def test_both_kernels_give_the_same_logits_but_for_rounding() -> None:
    """A prompt, then single tokens: on both kernels, and on the one for many rows alone."""
    pytest.importorskip("transformers")
    for pair in pairs("llama3", "bf16"):
        ids = random_requests((70,), 320)
        chunks = [[(0, 64)], *[[(0, 1)]] * 6]
        found: dict[bool, list[np.ndarray]] = {}
        for batch_invariant in (False, True):
            with emulated_runner(pair, batch_invariant=batch_invariant) as runner:
                session = Session(runner, ids)
                found[batch_invariant] = [session.step(c)[1][0] for c in chunks]
                bound = [len(runner.ready(rows).backend._bindings) for rows in (1, 2)]
                assert bound == ([3, 3] if batch_invariant else [2, 1])  # one row, in two turns
                stamps = [runner.ready(rows).backend.stamps() for rows in (1, 2)]
                assert [len(s) for s in stamps] == ([7, 7] if batch_invariant else [6, 1])
                assert all(a.began < a.ended < b.began for s in stamps for a, b in pairwise(s))
                assert stamps[1][0].dims["P"] == 63
        exact = pair.logits(ids[0])[63:]
        noise = relative(pair.logits(ids[0], half=True)[63:], exact)
        assert found[False][0].tobytes() == found[True][0].tobytes()
        for mine in found.values():
            assert 0 < relative(np.array(mine), exact) <= 1.5 * noise
        assert relative(np.array(found[False]), np.array(found[True])) <= 1.5 * noise
