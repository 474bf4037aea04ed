"""The step against transformers: logits and greedy tokens for tokens of many requests at once. Bits
do not depend on the rest of the batch, the chunks of a prompt, or the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from eventtensor.llm.model.tile_sizes import tiles_for
from eventtensor.llm.runner.runner import Runner
from tests.models.emulated_runner import emulated_runner
from tests.models.model_checks import (
    check_bits_of_cuts_and_company,
    check_error_of_bf16,
    check_greedy,
    check_logits,
    check_logits_of_every_row,
    check_sampled,
)
from tests.models.tiny_models import MODELS, Pair, Session, pairs, random_requests, relative

pytest.importorskip("torch")
pytest.importorskip("transformers")

# torch in bf16 on a CPU without it says so, at length.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from pairs(request.param, "f32")


@pytest.fixture(scope="module")
def runner(pair: Pair) -> Iterator[Runner]:
    with closing(pair.runner("cpu", workers=2)) as made:
        yield made


@pytest.fixture(scope="module", params=("llama3", "qwen3"))
def half(request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from pairs(request.param, "bf16")


@pytest.fixture(scope="module")
def half_runner(half: Pair) -> Iterator[Runner]:
    with closing(half.runner("cpu", workers=2)) as made:
        yield made


def test_logits_are_those_of_transformers(pair: Pair, runner: Runner) -> None:
    check_logits(pair, runner, limit=1e-5)


def test_greedy_tokens_are_those_of_transformers(pair: Pair, runner: Runner) -> None:
    check_greedy(pair, runner)


def test_bits_depend_on_neither_the_batch_nor_the_cuts_of_a_prompt(runner: Runner) -> None:
    check_bits_of_cuts_and_company(runner)


def test_many_rows_of_a_request_have_logits(runner: Runner, half_runner: Runner) -> None:
    check_logits_of_every_row(runner)
    check_logits_of_every_row(half_runner)


def test_bf16_is_as_near_as_transformers_in_bf16(half: Pair, half_runner: Runner) -> None:
    check_error_of_bf16(half, half_runner)


def test_bf16_bits_depend_on_neither_the_batch_nor_the_cuts(half_runner: Runner) -> None:
    check_bits_of_cuts_and_company(half_runner)


def test_every_schedule_and_number_of_workers_gives_the_same_bits() -> None:
    """`auto` has static grids and tickets; it is the kernel of other tests."""
    requests = random_requests((140, 3), MODELS["llama3"].vocab)
    seen = set()
    for pair in pairs("llama3", "bf16"):
        for schedule, workers in (("auto", 1), ("auto", 2), ("static", 2), ("push", 2)):
            with closing(pair.runner("cpu", schedule=schedule, workers=workers)) as runner:
                session = Session(runner, requests)
                found = [session.step(c)[1] for c in ([(0, 127), (1, 1)], [(0, 12), (1, 2)])]
                seen.add(b"".join(x.tobytes() for step in found for x in step.values()))
    assert len(seen) == 1


def test_cuda_in_the_emulator_is_as_near_and_its_bits_are_a_request_s_own() -> None:
    for pair in pairs("llama3", "bf16"):
        with emulated_runner(pair) as runner:
            check_error_of_bf16(pair, runner, (100, 20))
            check_bits_of_cuts_and_company(runner, 66, piece=6)
            check_logits_of_every_row(runner, (1, 5, 12))


def test_cuda_in_the_emulator_is_right_with_several_items_of_several_splits() -> None:
    for pair in pairs("llama3", "bf16"):
        with emulated_runner(pair, span=2) as runner:
            check_error_of_bf16(pair, runner, (530, 3))


def test_cuda_in_the_emulator_is_right_where_products_come_in_parts() -> None:
    for pair in pairs("wide", "bf16"):
        with emulated_runner(pair) as runner:
            tiles = tiles_for(runner.config, "cuda", many=True)
            assert tiles.qkv_parts == tiles.out_parts == 2
            check_error_of_bf16(pair, runner, (70, 9))
            check_bits_of_cuts_and_company(runner, 66, piece=11)


@pytest.mark.parametrize("name", ("llama3", "qwen3"))
def test_the_interpreter_agrees(name: str) -> None:
    requests = random_requests((66, 3), MODELS[name].vocab)
    for pair in pairs(name, "f32"):
        with closing(pair.runner("interp", pages=20)) as runner:
            session = Session(runner, requests)
            for chunks in ([(0, 65), (1, 1)], [(1, 2), (0, 1)]):
                _, logits = session.step(chunks)
                for r, got in logits.items():
                    wanted = pair.logits(requests[r][: session.done[r]])[-1]
                    assert relative(got, wanted) <= 1e-5


def test_a_step_draws_tokens_of_its_own_logits() -> None:
    for pair in pairs("llama3", "f32"):
        with closing(pair.runner("cpu", sampling=True, workers=2)) as runner:
            check_sampled(runner)


def test_what_is_compared_is_alive() -> None:
    """Models whose logits are flat, or whose text repeats, would show few mistakes."""
    for name in MODELS:
        for pair in pairs(name, "f32"):
            ids = random_requests((64,), MODELS[name].vocab)[0]
            assert pair.logits(ids).std() > 0.5
            assert len(set(pair.greedy(ids, 16))) > 4
            assert np.abs(pair.logits(ids)[-1] - pair.logits(ids[1:])[-1]).max() > 0.1
