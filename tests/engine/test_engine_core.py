"""The engine over a runner in Python: what a request gives does not depend on what else runs, on
pages that run out or on begins that are shared; failures stay where they belong."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventtensor import SamplingParams
from eventtensor.errors import (
    BadOption,
    BadPrompt,
    EngineStopped,
    PromptTooLong,
    QueueFull,
    StepFailed,
    StepStuck,
)
from eventtensor.llm.engine.request import FinishReason
from tests.engine.fake_runner import VOCAB, FakeRunner, answer, engine, limits

GREEDY = SamplingParams(temperature=0, max_tokens=12)


class Heard:
    """A sink that keeps all; `ended` is done when the last output has come."""

    def __init__(self):
        self.tokens, self.outputs, self.ended = [], [], Future()

    def __call__(self, output):
        assert not self.ended.done(), "an output after the last"
        self.outputs.append(output)
        self.tokens += [t.token for t in output.tokens]
        if output.finish is not None:
            self.ended.set_result(output)

    def wait(self):
        return self.ended.result(30)


def ask(made, prompt, params=GREEDY):
    heard = Heard()
    heard.request = made.submit(prompt, params, heard)
    return heard


@contextmanager
def held(made):
    """What is asked meanwhile comes to the engine at once."""
    gate = threading.Event()
    made._commands.put(lambda: gate.wait(30))
    yield
    gate.set()


def at_rest(made):
    """Nothing is open and no page is used."""
    done = Future()
    made._commands.put(lambda: done.set_result(None))
    done.result(30)
    s = made.scheduler
    return (made.num_open_requests, s.running, list(s.waiting), s.blocks.num_used_blocks,
            len(s._free_slots)) == (0, [], [], 0, s.limits.requests)


# ---- answers -----------------------------------------------------------------------------------

PARAMS = st.builds(
    SamplingParams, max_tokens=st.integers(1, 14), seed=st.integers(0, 5),
    temperature=st.sampled_from([0, 0.7, 1.5]), top_k=st.sampled_from([0, 0, 3]),
    top_p=st.sampled_from([1.0, 0.8]), min_p=st.sampled_from([0.0, 0.0, 0.1]),
    logprobs=st.sampled_from([None, None, 2]), ignore_eos=st.booleans())
# Few different tokens, so that begins are shared.
PROMPTS = st.lists(st.integers(2, 3), min_size=1, max_size=18)


@settings(max_examples=60, deadline=None)
@given(asked=st.lists(st.tuples(PROMPTS, PARAMS, st.none() | st.integers(0, 30)), min_size=1,
                      max_size=12),
       pages=st.integers(8, 20), rows=st.integers(4, 16), requests=st.integers(1, 4),
       target=st.sampled_from(["cpu", "cuda"]))
def test_answers_are_those_of_a_request_that_is_alone(asked, pages, rows, requests, target):
    """Some are cancelled at some step; 8 pages are one context. On a GPU requests hear of a token
    while the next step runs."""

    def before(launch):
        for heard, when in due:
            if when == launch:
                made.cancel(heard.request)

    due, sizes = [], limits(pages, rows, requests)
    with engine(lambda: FakeRunner(sizes, before, target)) as made:
        all_heard = []
        for prompt, params, when in asked:
            heard = ask(made, prompt, params)
            all_heard.append(heard)
            if when is not None:
                due.append((heard, when))
        for heard, (prompt, params, when) in zip(all_heard, asked, strict=True):
            last, wanted = heard.wait(), answer(prompt, params)
            if last.finish is FinishReason.cancelled:
                assert when is not None and heard.tokens == wanted[: len(heard.tokens)]
            else:
                assert heard.tokens == wanted
                full = len(wanted) == min(params.max_tokens, 32 - len(prompt))
                assert last.finish is (FinishReason.length if full else FinishReason.stop)
        assert at_rest(made)


def test_many_requests_in_few_pages_are_preempted_and_still_right():
    rng = np.random.default_rng(3)
    prompts = [rng.integers(2, VOCAB, n).tolist() for n in rng.integers(1, 20, 40)]
    params = SamplingParams(temperature=1, seed=4, max_tokens=12, ignore_eos=True)
    with engine(lambda: FakeRunner(limits(pages=9))) as made:
        heard = [ask(made, p, params) for p in prompts]
        assert {h.wait().finish for h in heard} == {FinishReason.length}
        assert [h.tokens for h in heard] == [answer(p, params) for p in prompts]
        assert made.scheduler.num_preemptions > 0 and at_rest(made)


def test_on_a_gpu_the_next_step_is_launched_before_tokens_are_known():
    """Whoever ends with the last of them has no row in it."""
    params = SamplingParams(temperature=1, seed=2, max_tokens=13, ignore_eos=True)
    for target, ahead in (("cuda", 12), ("cpu", 0)):
        runner = FakeRunner(target=target)
        with engine(lambda r=runner: r) as made:
            heard = ask(made, [5], params)
            heard.wait()
            assert heard.tokens == answer([5], params)
            assert (runner.ahead, runner.launches) == (ahead, 13) and at_rest(made)


@pytest.mark.parametrize(("most", "second"), ((None, 7), (1, 2), (3, 4)))
def test_prompts_have_so_many_rows_while_someone_decodes(most, second):
    """Nobody does in the first step; 6 tokens of the long prompt are left after it."""
    runner = FakeRunner(limits=limits(rows=8))
    with engine(lambda: runner, max_prefill_tokens=most) as made:
        with held(made):
            short, long = ask(made, [5, 6, 7]), ask(made, [9] * 11)
        assert short.wait().finish and long.wait().finish
        assert short.tokens == answer([5, 6, 7], GREEDY)
        assert long.tokens == answer([9] * 11, GREEDY) and at_rest(made)
        assert [rows for rows, _ in runner.sizes][:2] == [8, second]
        stats, shapes = made.stats, made.stats.steps_of_shape
        assert sum((a + b) * n for (a, b), n in shapes.items()) == stats.num_step_tokens
        assert shapes.total() == stats.num_steps == runner.launches


def test_far_into_a_prompt_its_steps_have_fewer_rows():
    """A split has 8 tokens here: the row at position p has p // 8 + 1 work items of attention."""
    params = SamplingParams(temperature=0, max_tokens=1)
    prompt, runner = [5] * 180, FakeRunner(limits=limits(pages=64, rows=8, positions=256))
    with engine(lambda: runner, max_model_len=256, max_prefill_items=16) as made:
        with held(made):
            long, short = ask(made, prompt, params), ask(made, [9] * 6, params)
        assert long.wait().finish and short.wait().finish
        assert long.tokens == answer(prompt, params, 256)
        assert short.tokens == answer([9] * 6, params) and at_rest(made)
    sizes = [rows for rows, _ in runner.sizes]
    assert sum(sizes) == 180 + 6 and sizes[:3] == [8, 8, 6] and sizes[-20:] == [1] * 20
    assert {4, 2} <= set(sizes)


def test_prefill_has_room_in_a_step():
    with pytest.raises(BadOption, match="max_prefill_tokens"), engine(max_prefill_tokens=0):
        pass


def test_what_needs_a_token_on_the_host_waits_for_it():
    """And goes on being right beside what does not."""
    plain = SamplingParams(temperature=1, seed=2, max_tokens=9, ignore_eos=True)
    told = SamplingParams(temperature=1, seed=3, max_tokens=9, ignore_eos=True, logprobs=1)
    runner = FakeRunner(target="cuda")
    with engine(lambda: runner) as made:
        with held(made):
            heard = [ask(made, [5], plain), ask(made, [6], told)]
        assert [h.wait().finish for h in heard] == [FinishReason.length] * 2
        assert [h.tokens for h in heard] == [answer([5], plain), answer([6], told)]
        assert runner.ahead == 0 and at_rest(made)


def test_prompts_with_the_same_begin_are_computed_once():
    begin = list(range(2, 18))
    with engine(lambda: FakeRunner(limits(pages=32))) as made:
        ask(made, [*begin, 30], GREEDY).wait()
        rows = made.stats.num_step_tokens
        again = ask(made, [*begin, 31], SamplingParams(temperature=0, max_tokens=1))
        again.wait()
        assert again.tokens == answer([*begin, 31], again.request.params)
        assert (made.stats.cached_tokens, made.stats.num_step_tokens - rows) == (16, 1)


def test_chunks_of_prompts_go_beside_requests_that_decode():
    runner = FakeRunner(limits(pages=32, rows=8))
    with engine(lambda: runner) as made:
        with held(made):
            first = ask(made, [5], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
            second = ask(made, list(range(2, 22)), SamplingParams(temperature=0, max_tokens=1))
        first.wait(), second.wait()
    # 20 tokens of the prompt beside 6 of the first: 7 rows a step are left for it.
    assert runner.sizes[:4] == [(8, 1), (8, 1), (7, 2), (1, 1)]


def test_tokens_that_end_an_answer_are_no_part_of_it():
    whole = answer([7, 8], SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    stop = next(t for t in whole if t != whole[0])
    with engine() as made:
        heard = ask(made, [7, 8], SamplingParams(temperature=0, max_tokens=12, ignore_eos=True,
                                                 stop_token_ids=[stop]))
        assert heard.wait().finish is FinishReason.stop
        assert heard.tokens == whole[: whole.index(stop)]


def test_the_context_bounds_prompt_and_answer_together():
    with engine() as made:
        heard = ask(made, [3] * 30, SamplingParams(temperature=0, ignore_eos=True))
        assert heard.wait().finish is FinishReason.length and len(heard.tokens) == 2
        with pytest.raises(BadPrompt, match="0 tokens"):
            made.submit([], GREEDY, Heard())
        for prompt, params in (([3] * 32, SamplingParams()), ([3] * 21, GREEDY)):
            with pytest.raises(PromptTooLong, match="maximum context length is 32 tokens"):
                made.submit(prompt, params, Heard())
        for tokens in ([VOCAB], [-1], ["a"], [2.0]):
            with pytest.raises(BadPrompt, match="beyond"):
                made.submit(tokens, GREEDY, Heard())


def test_a_context_that_never_fits_is_refused():
    for sizes in (limits(pages=7), limits(positions=31)):
        with pytest.raises(BadOption, match="context of 32"), engine(lambda s=sizes: FakeRunner(s)):
            pass


# ---- failures ----------------------------------------------------------------------------------


def test_a_queue_that_is_full_refuses_and_takes_again_later():
    gate = threading.Event()
    with engine(lambda: FakeRunner(before=lambda n: gate.wait(30)), max_waiting=1) as made:
        heard = [ask(made, [3]) for _ in range(5)]
        with pytest.raises(QueueFull, match="5 requests"):
            ask(made, [3])
        gate.set()
        for h in heard:
            h.wait()
        assert ask(made, [3]).wait().finish is not FinishReason.error


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_sink_that_fails_ends_its_own_request_alone(target):
    """On a GPU in the middle of the next step, in which it has a row."""
    heard = []

    def bad(output):
        heard.append(output)
        if len(heard) >= 3:
            raise RuntimeError("nobody listens")

    with engine(lambda: FakeRunner(target=target)) as made:
        other = ask(made, [4, 5])
        made.submit([6, 7, 8, 9, 10], SamplingParams(ignore_eos=True), bad)
        assert other.wait().finish is not FinishReason.error
        assert other.tokens == answer([4, 5], GREEDY)
        while made.num_open_requests:
            time.sleep(0.001)
        assert ask(made, [9]).wait() and at_rest(made)
        assert (len(heard), heard[-1].finish) == (4, FinishReason.error)
        assert made.stats.num_undelivered_ends == 1


def test_a_choice_that_fails_ends_its_own_request_alone(monkeypatch):
    def fail(logits, token, most):
        raise ZeroDivisionError("no choice")

    monkeypatch.setattr("eventtensor.llm.engine.engine_core.compute_logprobs", fail)
    with engine() as made:
        other = ask(made, [4, 5])
        bad = ask(made, [4, 6], SamplingParams(logprobs=1))
        assert isinstance(bad.wait().error, StepFailed) and "no choice" in str(bad.wait().error)
        other.wait()
        assert other.tokens == answer([4, 5], GREEDY) and at_rest(made)


def test_a_launch_that_fails_costs_its_requests_and_the_engine_goes_on():
    made_runners = []

    def make():
        first = not made_runners

        def before(n):
            if first and n == 3:
                raise RuntimeError("lost")

        made_runners.append(FakeRunner(limits(requests=2), before))
        return made_runners[-1]

    with engine(make) as made:
        with held(made):
            heard = [ask(made, [k, k]) for k in range(2, 6)]
        ends = [h.wait() for h in heard]
        assert [e.finish is FinishReason.error for e in ends] == [True, True, False, False]
        assert "lost" in ends[0].error.message
        assert [h.tokens for h in heard[2:]] == [answer([k, k], GREEDY) for k in (4, 5)]
        assert [r.closed for r in made_runners] == [True, False] and at_rest(made)


def test_an_engine_that_keeps_failing_stops_and_says_why():
    def before(n):
        raise RuntimeError("broken for good")

    with engine(lambda: FakeRunner(limits(requests=1), before)) as made:
        with held(made):
            heard = [ask(made, [k]) for k in range(2, 7)]
        assert all("broken for good" in h.wait().error.message for h in heard)
        made._thread.join(30)
        with pytest.raises(EngineStopped, match="broken for good"):
            ask(made, [5])


def test_closing_ends_what_is_open():
    gate, inside = threading.Event(), threading.Event()

    def before(n):
        inside.set()
        gate.wait(30)

    with engine(lambda: FakeRunner(before=before)) as made:
        heard = [ask(made, [k]) for k in range(2, 9)]
        inside.wait(30)
        closing = threading.Thread(target=made.close)
        closing.start()
        while made._commands.empty():
            time.sleep(0.001)
        gate.set()
        closing.join(30)
        assert {type(h.wait().error) for h in heard} == {EngineStopped}
        assert made.runner.closed


def test_a_stuck_step_fails_its_requests_and_later_ones_are_served():
    gate, inside = threading.Event(), threading.Event()

    def before(n):
        if n == 2:
            inside.set()
            gate.wait(30)

    with engine(lambda: FakeRunner(before=before), step_limit_s=0.01) as made:
        assert made.stuck_s == 0
        with held(made):
            heard = [ask(made, [k]) for k in range(2, 5)]
        inside.wait(30)
        while not made.stuck_s:
            time.sleep(0.001)
        made.fail_stuck()
        assert all(isinstance(h.wait().error, StepStuck) for h in heard)
        assert made.num_open_requests == 0
        gate.set()
        later = ask(made, [9])
        later.wait()
        assert later.tokens == answer([9], GREEDY) and at_rest(made) and made.stuck_s == 0


def test_a_stuck_step_that_fails_in_the_end_leaves_nobody_behind():
    """Some of those who were told of the stuck step were still waiting."""
    gate, inside, made_runners = threading.Event(), threading.Event(), []

    def make():
        def before(n):
            if len(made_runners) == 1 and n == 2:
                inside.set()
                gate.wait(30)
                raise RuntimeError("lost")

        made_runners.append(FakeRunner(limits(requests=1), before))
        return made_runners[-1]

    with engine(make, step_limit_s=0.01) as made:
        with held(made):
            heard = [ask(made, [k]) for k in range(2, 5)]
        inside.wait(30)
        while not made.stuck_s:
            time.sleep(0.001)
        made.fail_stuck()
        gate.set()
        assert all(isinstance(h.wait().error, StepStuck) for h in heard)
        later = ask(made, [9])
        later.wait()
        assert later.tokens == answer([9], GREEDY) and at_rest(made)
