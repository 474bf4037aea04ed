"""Log probabilities of prompts are those of the reference, however prompts are cut into steps, in
whatever company, after preemption, and beside begins that the cache knows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventtensor import SamplingParams
from eventtensor.errors import BadParameter, BadPrompt, StepFailed
from eventtensor.llm.engine.request import FinishReason
from tests.engine.fake_runner import VOCAB, FakeRunner, answer, engine, limits, logits_after
from tests.engine.test_engine_core import PROMPTS, Heard, ask, at_rest, held

ONLY = SamplingParams(max_tokens=0, prompt_logprobs=2)


def told(heard):
    """The entries for the prompt, which come once."""
    (found,) = [o.prompt for o in heard.outputs if o.prompt]
    assert found is heard.outputs[0].prompt
    return found


def check(found, prompt, most):
    assert [c.token for c in found] == prompt == [found[k].token for k in range(len(prompt))]
    assert found[0].logprobs is None
    for k, entry in enumerate(found[1:], 1):
        logits = logits_after(prompt[:k]).astype(np.float64)
        logp = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        p, order = entry.logprobs, sorted(range(VOCAB), key=lambda t: -logp[t])
        assert p.chosen == pytest.approx(logp[prompt[k]], abs=1e-5)
        assert [t for t, _ in p.top] == order[:most]
        np.testing.assert_allclose([x for _, x in p.top], logp[order[:most]], atol=1e-5)
        assert p.rank == order.index(prompt[k]) + 1
        assert not p.top or (p.chosen == p.top[0][1]) == (order[0] == prompt[k])


MIXED = st.builds(
    SamplingParams, max_tokens=st.integers(1, 14), seed=st.integers(0, 5),
    temperature=st.sampled_from([0, 1.5]), logprobs=st.sampled_from([None, None, 2]),
    prompt_logprobs=st.sampled_from([None, 0, 3]),
    frequency_penalty=st.sampled_from([0, 0, 0, 1e-9]), ignore_eos=st.booleans())


@settings(max_examples=120, deadline=None)
@given(asked=st.lists(st.tuples(PROMPTS, MIXED | st.just(ONLY), st.none() | st.integers(0, 30)),
                      min_size=1, max_size=10),
       pages=st.integers(8, 20), rows=st.integers(4, 16), requests=st.integers(1, 4),
       max_prefill_tokens=st.none() | st.integers(1, 4), items=st.none() | st.integers(1, 12),
       target=st.sampled_from(["cpu", "cuda"]))
def test_prompts_are_scored_in_any_company(
    asked, pages, rows, requests, max_prefill_tokens, items, target
):
    """Steps have logits for as many rows as there may be requests, one to four, and some requests
    are cancelled. Their answers are those that they give alone."""

    def before(launch):
        for heard, when in due:
            if when == launch:
                made.cancel(heard.request)

    due, sizes = [], limits(pages, rows, requests)
    with engine(lambda: FakeRunner(sizes, before, target), max_prefill_tokens=max_prefill_tokens,
                max_prefill_items=items) as made:
        all_heard = []
        with held(made):
            for prompt, params, when in asked:
                heard = ask(made, prompt, params)
                all_heard.append(heard)
                if when is not None:
                    due.append((heard, when))
        for heard, (prompt, params, when) in zip(all_heard, asked, strict=True):
            last = heard.wait()
            wanted = answer(prompt, params) if params.max_tokens else []
            if last.finish is FinishReason.cancelled:
                assert when is not None and heard.tokens == wanted[: len(heard.tokens)]
            else:
                assert heard.tokens == wanted
                assert last.finish in (FinishReason.length, FinishReason.stop)
            if params.prompt_logprobs is not None and (heard.tokens or not when):
                check(told(heard), prompt, params.prompt_logprobs)
        assert at_rest(made)


def test_rows_with_logits_are_bounded_and_others_decode_beside_them():
    """20 tokens, with logits for 4 rows a step, of which whoever decodes has one."""
    runner = FakeRunner(limits(pages=32, rows=16))
    with engine(lambda: runner) as made:
        with held(made):
            first = ask(made, [5], SamplingParams(temperature=0, max_tokens=9, ignore_eos=True))
            second = ask(made, list(range(2, 22)), ONLY)
        first.wait(), second.wait()
    assert runner.sizes[:8] == [(4, 4)] * 6 + [(3, 3), (1, 1)]
    check(told(second), list(range(2, 22)), 2)
    assert second.outputs[-1].finish is FinishReason.length and not second.tokens
    assert made.stats.tokens == 9 and made.stats.prompt_tokens == 21


def test_a_plain_prompt_uses_the_rows_that_scoring_leaves():
    runner = FakeRunner(limits(pages=32, rows=16))
    with engine(lambda: runner) as made:
        with held(made):
            ask(made, [*range(2, 10)], ONLY)
            plain = ask(made, [*range(2, 22)], SamplingParams(temperature=0, max_tokens=1))
        plain.wait()
    assert runner.sizes[0] == (16, 4)
    assert plain.tokens == answer([*range(2, 22)], plain.request.params)


def test_a_begin_that_is_known_is_computed_again_and_shared_with_others():
    prompt = [*range(2, 19)]
    with engine(lambda: FakeRunner(limits(pages=32))) as made:
        for _ in range(2):
            heard = ask(made, prompt, ONLY)
            heard.wait()
            check(told(heard), prompt, 2)
            assert made.stats.cached_tokens == 0
        ask(made, prompt, SamplingParams(temperature=0, max_tokens=1)).wait()
        assert made.stats.cached_tokens == 16


def test_what_is_scored_stays_scored_when_pages_run_out():
    """The scorer is the youngest, and gives its pages back to who decodes."""
    runner = FakeRunner(limits(pages=9, rows=16, requests=2))
    prompt = [*range(2, 22)]
    with engine(lambda: runner) as made:
        with held(made):
            long = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
            first = ask(made, [5] * 12, long)
            second = ask(made, prompt, SamplingParams(temperature=0, max_tokens=8,
                                                      prompt_logprobs=1, ignore_eos=True))
        first.wait(), second.wait()
        assert made.scheduler.num_preemptions > 0 and at_rest(made)
    check(told(second), prompt, 1)
    assert second.tokens == answer(prompt, second.request.params)


def test_no_step_is_begun_while_logits_are_wanted():
    runner = FakeRunner(limits(pages=32), target="cuda")
    prompt = [*range(2, 22)]
    with engine(lambda: runner) as made:
        heard = ask(made, prompt, SamplingParams(max_tokens=0, prompt_logprobs=0))
        heard.wait()
        check(told(heard), prompt, 0)
        assert runner.ahead == 0
        heard = ask(made, prompt, SamplingParams(temperature=0, max_tokens=5, prompt_logprobs=3,
                                                 ignore_eos=True))
        heard.wait()
        check(told(heard), prompt, 3)
        assert runner.ahead == 3  # of the answer, whose first token comes with the last logits


def test_a_prompt_of_one_token_and_one_that_fills_the_context():
    with engine() as made:
        for prompt in ([7], [7] * 32):
            heard = ask(made, prompt, ONLY)
            assert heard.wait().finish is FinishReason.length and not heard.tokens
            check(told(heard), prompt, 2)
        with pytest.raises(BadPrompt, match="context"):
            made.submit([7] * 33, ONLY, Heard())
        assert at_rest(made)


def test_logits_that_are_not_finite_end_the_request_that_wants_them():
    class Bad(FakeRunner):
        def result(self, logits):
            found = super().result(logits)
            found.logits[:] = np.nan
            return found

    with engine(Bad) as made:
        with held(made):
            bad, other = ask(made, [4, 5, 6, 7, 8], ONLY), ask(made, [4, 5])
        assert isinstance(bad.wait().error, StepFailed) and "finite" in str(bad.wait().error)
        other.wait()
        assert other.tokens == answer([4, 5], other.request.params) and at_rest(made)


def test_the_token_that_ends_an_answer_is_told_with_its_log_probability():
    params = SamplingParams(temperature=0, max_tokens=12, logprobs=1)
    prompt = next([a, b] for a in range(2, VOCAB) for b in range(2, VOCAB)
                  if len(answer([a, b], params)) < 6)
    with engine() as made:
        heard = ask(made, prompt, params)
        last = heard.wait()
    assert last.finish is FinishReason.stop and last.end.token == 1 and last.tokens == ()
    assert last.end.logprobs.top[0] == (1, last.end.logprobs.chosen)
    assert all(o.end is None for o in heard.outputs[:-1])


def test_no_answer_needs_log_probabilities_of_the_prompt():
    with pytest.raises(BadParameter, match="max_tokens is 0"):
        SamplingParams(max_tokens=0)
