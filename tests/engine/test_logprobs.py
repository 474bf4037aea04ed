"""The reference of the choice beside its definition and beside transformers; log probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from eventtensor import SamplingParams
from eventtensor.errors import StepFailed
from eventtensor.llm.engine.logprobs import compute_logprobs
from tests.engine.reference import draw, penalised
from tests.models.sampling_reference import Wish, drawn

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.7), (9, 0.5), (1, 1.0)])
def test_tokens_are_drawn_as_the_kernel_draws_them(top_k, top_p):
    for _ in range(50):
        logits, u = RNG.standard_normal(64) * 3, float(RNG.random())
        p = SamplingParams(temperature=0.8, top_k=top_k, top_p=top_p)
        assert draw(logits, p, u) == drawn(logits, Wish(0, 0.8, top_k, top_p, u))


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    p = SamplingParams(min_p=0.35)
    assert {draw(logits, p, u) for u in np.linspace(0, 0.999, 99)} == {0, 1}
    assert draw(logits, p, 0.62) == 0 and draw(logits, p, 0.63) == 1  # 5 of 8


def test_penalties_are_those_of_transformers():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    logits, tokens = RNG.standard_normal(30) * 4, [3, 5, 5, 29, 0]
    theirs = transformers.RepetitionPenaltyLogitsProcessor(1.7)(
        torch.tensor([tokens]), torch.tensor(logits[None]))[0].numpy()
    ours = penalised(logits.copy(), tokens, 2, SamplingParams(repetition_penalty=1.7))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_presence_and_frequency_count_the_answer_alone():
    p = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    found = penalised(np.zeros(8), [1, 2, 3, 3, 4], 2, p)
    np.testing.assert_array_equal(found, [0, 0, 0, -1.0, -0.75, 0, 0, 0])


def test_log_probabilities_are_of_the_logits_as_the_model_gave_them():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05])).astype(np.float32)
    found = compute_logprobs(logits, 1, 2)
    assert found.chosen == pytest.approx(np.log(0.3), abs=1e-6)
    assert [t for t, _ in found.top] == [0, 1]
    np.testing.assert_allclose([x for _, x in found.top], np.log([0.5, 0.3]), rtol=1e-6)


@pytest.mark.parametrize("most", [0, 1, 8])
def test_as_many_likeliest_tokens_as_asked_the_lowest_first_among_equals(most):
    found = compute_logprobs(np.array([1, 2, 2, 0, 2, 1, 1, 1], np.float32), 3, most)
    assert [t for t, _ in found.top] == [1, 2, 4, 0, 5, 6, 7, 3][:most]


def test_logits_that_are_not_finite_fail_the_request():
    with pytest.raises(StepFailed, match="finite"):
        compute_logprobs(np.array([0, np.nan], np.float32), 0, 0)
