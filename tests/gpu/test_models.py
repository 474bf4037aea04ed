"""Models on the GPU: tiny ones against transformers, a full-size one against torch on the same
weights; bits that repeat, and that belong to a request alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.llm.model.attention_block import page_tokens
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.sampler import TILE
from eventtensor.llm.runner.runner import Runner, StepToken, TokenChoice, layout_of
from tests.models.model_checks import (
    check_bits_of_cuts_and_company,
    check_error_of_bf16,
    check_greedy,
    check_logits,
    check_sampled,
)
from tests.models.sampling_reference import (
    Wish,
    check_case,
    choice,
    chooser,
    random_case,
    random_change,
)
from tests.models.tiny_models import MODELS, MOE, Pair, Session, pairs, random_requests, relative

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.limit(240)  # of which a compilation may take a minute


# ---- tiny models -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=MODELS | MOE)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from pairs(request.param, "bf16")


@pytest.fixture(scope="module")
def runner(pair: Pair) -> Iterator[Runner]:
    with closing(pair.runner("cuda", batch_invariant=True)) as made:
        yield made


@pytest.fixture(scope="module")
def fast(pair: Pair) -> Iterator[Runner]:
    """With a kernel of its own for steps of one row."""
    with closing(pair.runner("cuda")) as made:
        yield made


def test_logits_are_as_near_as_those_of_transformers_in_bf16(pair: Pair, runner: Runner) -> None:
    check_error_of_bf16(pair, runner)


def test_rows_alone_are_as_near_as_those_of_transformers_in_bf16(pair: Pair, fast: Runner) -> None:
    ids = random_requests((80,), fast.config.vocab, seed=6)
    exact, half = pair.logits(ids[0]), pair.logits(ids[0], half=True)
    session = Session(fast, ids)
    got = np.array([session.step([(0, 1)])[1][0] for _ in ids[0]])
    assert 0 < relative(got, exact) <= 1.5 * relative(half, exact)


def test_bits_depend_on_neither_the_batch_nor_the_cuts_of_a_prompt(runner: Runner) -> None:
    check_bits_of_cuts_and_company(runner)


@pytest.mark.parametrize("name", ("llama3", "qwen3", "qwen3_moe"))
def test_float32_gives_the_logits_and_tokens_of_transformers(name: str) -> None:
    for pair in pairs(name, "f32"):
        with closing(pair.runner("cuda")) as runner:
            check_logits(pair, runner, limit=1e-5)
            check_greedy(pair, runner)
        with closing(pair.runner("cuda", batch_invariant=True)) as runner:
            check_bits_of_cuts_and_company(runner)


def test_a_step_draws_tokens_of_its_own_logits() -> None:
    for pair in pairs("llama3", "bf16"):
        with closing(pair.runner("cuda", sampling=True)) as runner:
            check_sampled(runner)


def test_tokens_of_a_large_vocabulary_are_drawn_as_defined() -> None:
    vocab, asked, drawn = 151936, 0, 0
    rng = np.random.default_rng(1)
    with closing(et.compile(choice(vocab, TILE), target="cuda")) as kernel:
        for rows in (1, 3, 16):
            logits, wishes = random_case(rng, rows, vocab)
            asked += check_case(logits, wishes, chooser(kernel)(logits, wishes))
            drawn += len(wishes)
    assert asked > drawn // 2


# ---- full size -------------------------------------------------------------------------------

POSITIONS, LENGTHS = 2048, (1, 129, 1024, 1800)


class FullSize:
    """Requests, each before its next token: tokens before it are random keys and values."""

    def __init__(
        self, sampling: bool, config: ModelConfig = PRESETS["llama-3.2-1b"], requests: int = 4,
        batch_invariant: bool = True,
    ) -> None:
        from tests.gpu.torch_llama import TorchLlama, random_packed

        weights = random_packed(config, layout_of("cuda", batch_invariant=batch_invariant))
        each = POSITIONS // page_tokens(config)
        self.runner = Runner(config, weights, target="cuda", pages=requests * each,
                             positions=POSITIONS, sampling=sampling,
                             batch_invariant=batch_invariant)
        shape = tuple(self.runner.fixed["kv"].shape)
        kv = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
        self.runner.fixed["kv"] = kv.normal_(generator=torch.Generator("cuda").manual_seed(1))
        torch.cuda.synchronize()  # the kernel runs on a stream of its own
        self.torch = TorchLlama(config, weights, kv, POSITIONS)
        order = [int(p) for p in np.random.default_rng(2).permutation(requests * each)]
        self.tables = [order[k * each : (k + 1) * each] for k in range(requests)]
        self.rows = [StepToken(k, 1000 + 37 * k, LENGTHS[k % 4] - 1) for k in range(requests)]

    def step(self, requests: tuple[int, ...] = (0, 1, 2, 3), **options: Any) -> Any:
        rows = [self.rows[r] for r in requests]
        return self.runner.step(rows, self.tables, len(rows), **options)

    def errors(self, logits: np.ndarray, k: int) -> tuple[float, float]:
        """Of row k, of the norm: ours and those of torch in bf16."""
        row = self.rows[k]
        exact, half = (self.torch.logits(row.token, row.position, self.tables[k], dtype)
                       for dtype in (torch.float32, torch.bfloat16))
        got = torch.from_numpy(logits[k]).cuda()
        ours, theirs = (((x - exact).norm() / exact.norm()).item() for x in (got, half))
        return ours, theirs

    def check(self, logits: np.ndarray, which: Sequence[int]) -> None:
        """Some rows are as near as torch's in bf16."""
        for k in which:
            ours, theirs = self.errors(logits, k)
            print(f"row {k} of {len(logits)}: {ours:.3e}, torch in bf16 {theirs:.3e}")
            assert 0 < ours <= 1.5 * theirs, f"row {k} of {len(logits)}: {ours} beside {theirs}"


@pytest.fixture(scope="module")
def full() -> Iterator[FullSize]:
    made = FullSize(sampling=False)
    yield made
    made.runner.close()


def test_a_full_size_model_is_as_near_as_torch_in_bf16(full: FullSize) -> None:
    tokens, logits = full.step()
    np.testing.assert_array_equal(tokens, logits.argmax(1))
    full.check(logits, range(4))


def test_the_kernels_for_rows_alone_are_as_near_at_full_size() -> None:
    full = FullSize(sampling=False, requests=64, batch_invariant=False)
    for rows in (1, 16, 33, 64):
        tokens, logits = full.step(tuple(range(rows)))
        np.testing.assert_array_equal(tokens, logits.argmax(1))
        full.check(logits, sorted({0, rows // 2, rows - 1}))
    full.runner.close()


def test_a_thousand_steps_give_the_same_bits(full: FullSize) -> None:
    first = full.step()
    for k in range(1000):
        again = full.step()
        assert again.logits.tobytes() == first.logits.tobytes(), f"step {k}"
        np.testing.assert_array_equal(again.tokens, first.tokens)


def test_a_full_size_request_has_the_same_bits_alone(full: FullSize) -> None:
    together = full.step()
    for r in range(4):
        assert full.step((r,)).logits[0].tobytes() == together.logits[r].tobytes(), r
    paired = full.step((3, 1))
    assert paired.logits.tobytes() == together.logits[[3, 1]].tobytes()


def errors(full: FullSize, logits: np.ndarray) -> tuple[float, float]:
    """The mean of all rows: noise may decide between two experts, in either."""
    each = [full.errors(logits, k) for k in range(len(full.rows))]
    ours, theirs = (sum(some) / len(each) for some in zip(*each, strict=True))
    print(f"errors: {ours:.3e}, torch in bf16 {theirs:.3e}")
    return ours, theirs


@pytest.mark.parametrize("alone", (False, True))
def test_layers_with_experts_of_full_size_are_as_near_as_torch_in_bf16(alone: bool) -> None:
    """So few that what noise decides does not grow from layer to layer; rows together, or alone by
    the kernel for one."""
    few = replace(PRESETS["qwen3-30b-a3b"], layers=4)
    full = FullSize(sampling=False, config=few, batch_invariant=not alone)
    logits = np.concatenate([full.step((k,)).logits for k in range(4)]) if alone \
        else full.step().logits
    ours, half = errors(full, logits)
    assert 0 < ours <= 1.5 * half and ours < 0.1, (ours, half)
    full.runner.close()


def test_a_full_size_model_with_experts_is_as_near_as_torch_in_bf16() -> None:
    """One test, as two processes with such weights are more than a GPU holds."""
    full = FullSize(sampling=False, config=PRESETS["qwen3-30b-a3b"])
    first = full.step().logits
    ours, half = errors(full, first)
    assert 0 < ours <= 1.5 * half, (ours, half)
    for k in range(1000):
        assert full.step().logits.tobytes() == first.tobytes(), f"step {k}"
    for r in range(4):
        assert full.step((r,)).logits[0].tobytes() == first[r].tobytes(), r
    full.runner.close()


def test_a_full_size_model_draws_tokens_of_its_own_logits() -> None:
    full = FullSize(sampling=True)
    change = random_change(np.random.default_rng(1), full.runner.config.vocab)
    wishes = [Wish(0, 1.0, 0, 0.9, 0.3), Wish(2, 0.7, 50, 0.95, 0.8, 0.001, change),
              Wish(3, 1.5, 40, 1.0, 0.5, 0.1)]
    own = {w.row: w.choice for w in wishes}
    tokens, logits = full.step(choices=[own.get(r, TokenChoice()) for r in range(4)])
    assert check_case(logits, wishes, tokens) >= 2
    again = full.step(choices=[own.get(r, TokenChoice()) for r in range(4)])
    np.testing.assert_array_equal(again.tokens, tokens)
    np.testing.assert_array_equal(full.step().tokens, logits.argmax(1))
    full.runner.close()
