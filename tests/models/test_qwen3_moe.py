"""Qwen3-MoE against transformers: logits and greedy tokens for tokens of many requests at once,
bits that do not depend on the batch, and routings beyond those of random weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from unittest.mock import patch

import numpy as np
import pytest

from eventtensor import LLM, SamplingParams
from eventtensor.llm.runner.runner import Runner, StepToken
from tests.models.emulated_runner import emulated_runner
from tests.models.model_checks import (
    check_bits_of_cuts_and_company,
    check_error_of_bf16,
    check_greedy,
    check_logits,
)
from tests.models.tiny_models import MOE, Pair, Session, make_pair, pairs, random_requests, relative

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
NAME = "qwen3_moe"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    yield from pairs(NAME, "f32")


@pytest.fixture(scope="module")
def runner(pair: Pair) -> Iterator[Runner]:
    with closing(pair.runner("cpu", workers=2)) as made:
        yield made


@pytest.fixture(scope="module")
def half() -> Iterator[Pair]:
    yield from pairs(NAME, "bf16")


@pytest.fixture(scope="module")
def half_runner(half: Pair) -> Iterator[Runner]:
    with closing(half.runner("cpu", workers=2)) as made:
        yield made


def test_logits_are_those_of_transformers(pair: Pair, runner: Runner) -> None:
    check_logits(pair, runner, limit=1e-5)


def test_greedy_tokens_are_those_of_transformers(pair: Pair, runner: Runner) -> None:
    check_greedy(pair, runner)


def test_bf16_is_as_near_as_transformers_in_bf16(half: Pair, half_runner: Runner) -> None:
    check_error_of_bf16(half, half_runner)


def test_bf16_bits_depend_on_neither_the_batch_nor_the_cuts(half_runner: Runner) -> None:
    check_bits_of_cuts_and_company(half_runner, 130, piece=5)


def test_the_interpreter_agrees(pair: Pair) -> None:
    requests = random_requests((8, 3), MOE[NAME].vocab)
    with closing(pair.runner("interp", pages=20)) as runner:
        session = Session(runner, requests)
        for chunks in ([(0, 7), (1, 1)], [(1, 2), (0, 1)]):
            _, logits = session.step(chunks)
            for r, got in logits.items():
                wanted = pair.logits(requests[r][: session.done[r]])[-1]
                assert relative(got, wanted) <= 1e-5


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_cuda_in_the_emulator_is_as_near_with_one_row_and_with_many(
    half: Pair, batch_invariant: bool
) -> None:
    ids = random_requests((16,), MOE[NAME].vocab, seed=6)
    exact, torch_bf16 = half.logits(ids[0]), half.logits(ids[0], half=True)
    with emulated_runner(half, batch_invariant=batch_invariant) as runner:
        session = Session(runner, ids)
        ends = [8, *range(9, 17)]
        got = [session.step([(0, n)])[1][0] for n in (8, *(1 for _ in ends[1:]))]
        assert runner.fixed["active"].tolist() == [MOE[NAME].top] * 2
    at = [k - 1 for k in ends]
    assert 0 < relative(np.array(got), exact[at]) <= 1.5 * relative(torch_bf16[at], exact[at])


# ---- routings --------------------------------------------------------------------------------


def lowest_first(x: torch.Tensor, k: int, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """torch.topk, by which ties may go to any."""
    values, index = torch.sort(x, dim=dim, descending=True, stable=True)
    return values[..., :k], index[..., :k]


def routers(kind: str, weight: torch.Tensor) -> None:
    """All scores equal; or one expert above all and one below, by the sign of a row, the others
    equal between: most experts have no token, and the lowest has all of them."""
    towards = weight[5].clone()
    weight.zero_()
    if kind == "some equal":
        weight[5], weight[9] = towards, -towards


@pytest.mark.parametrize("kind", ("all equal", "some equal"))
def test_ties_go_to_the_lowest_and_experts_may_be_idle(
    kind: str, runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The kernel is the same: only its weights are others."""
    requests = random_requests((33, 2), MOE[NAME].vocab, seed=6)
    other = make_pair(NAME, "f32", tmp_path_factory.mktemp("ties"),
                      change=lambda key, x: routers(kind, x) if "mlp.gate." in key else None)
    with (
        closing(other.runner("cpu", workers=2)) as tied, patch.object(torch, "topk", lowest_first),
    ):
        session = Session(tied, requests)
        for chunks in ([(0, 1)], [(0, 30), (1, 2)], [(0, 2)]):
            for r, got in session.step(chunks)[1].items():
                wanted = other.logits(requests[r][: session.done[r]])[-1]
                assert relative(got, wanted) <= 1e-5
        used = tied.fixed["active"].tolist()
    top = MOE[NAME].top
    assert used == [top] * 2 if kind == "all equal" else all(top <= n <= top + 1 for n in used)


# ---- what is read, and the way in ------------------------------------------------------------


def test_a_step_reads_the_experts_in_use_alone(runner: Runner) -> None:
    tiny = MOE[NAME]
    runner.step([StepToken(0, 5, 0)], [[0]])
    shared = sum(runner.fixed[k].nbytes for k in ("w_qkv", "w_o", "w_router", "head"))
    expert = sum(runner.fixed[k][0, 0].nbytes for k in ("w_gate_up", "w_down"))
    token = 2 * tiny.layers * (tiny.heads // tiny.group) * tiny.head_dim * 4
    experts = tiny.layers * tiny.top * expert
    assert runner.bytes_read([StepToken(0, 5, 0)]) == shared + experts + token
    many = [StepToken(0, int(t), k) for k, t in enumerate(np.arange(64))]
    runner.step(many, [[0]])
    used = runner.fixed["active"]
    assert (used > tiny.top).all() and (used <= tiny.experts).all()


def test_random_weights_generate() -> None:
    with LLM("random:tiny-qwen3-moe", target="interp", max_model_len=128, max_num_seqs=1) as llm:
        found = llm.generate([[3, 1]], SamplingParams(temperature=0, max_tokens=2))[0]
        assert len(found.tokens) == 2 and llm.engine.stats.num_steps == 2


def test_what_is_compared_is_alive(pair: Pair) -> None:
    ids = random_requests((64,), MOE[NAME].vocab)[0]
    assert pair.logits(ids).std() > 0.5
    assert len(set(pair.greedy(ids, 16))) > 4
