"""No end before `min_tokens` tokens: not by a token, and not by a text."""

from __future__ import annotations

import numpy as np
import pytest

from eventtensor import LLM, SamplingParams
from eventtensor.errors import BadParameter
from eventtensor.llm.engine.detokenizer import Detokenizer
from eventtensor.llm.engine.request import FinishReason
from eventtensor.llm.engine.token_bitmask import bitmask_without
from tests.engine.fake_runner import EOS, VOCAB, FakeRunner, engine, limits, logits_after
from tests.engine.test_detokenizer import Letters
from tests.engine.test_engine_core import Heard
from tests.engine.tiny_chat import write_tiny_chat

ENDS = (EOS, 5, 9, 11, 20, 33)
PROMPTS = [[7, 8], [4, 5], [6], [30, 2, 3], [11, 12], [13, 1]]


def greedy(prompt: list[int], least: int, most: int) -> list[int]:
    """What the request gives, in plain words."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + most:
        logits = logits_after(tokens).astype(np.float64)
        if len(tokens) - len(prompt) < least:
            logits[list(ENDS)] = -np.inf
        token = int(logits.argmax())
        if token in ENDS:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("least", [1, 4, 20])
def test_an_answer_has_at_least_so_many_tokens_and_ends_where_it_may(target, least):
    params = SamplingParams(temperature=0, min_tokens=least, max_tokens=20,
                            stop_token_ids=[*ENDS[1:], VOCAB + 7])
    runner = FakeRunner(limits(pages=64), target=target)
    with engine(lambda: runner) as made:
        every = [Heard() for _ in PROMPTS]
        for prompt, heard in zip(PROMPTS, every, strict=True):
            made.submit(prompt, params, heard)
        ends = [heard.wait().finish for heard in every]
    assert [h.tokens for h in every] == [greedy(p, least, 20) for p in PROMPTS]
    assert min(len(h.tokens) for h in every) >= least
    assert [e is FinishReason.length for e in ends] == [len(h.tokens) == 20 for h in every]
    # Those that may end go on beside the host's work.
    assert (runner.ahead > 0) == (target == "cuda" and least < 20)


def test_an_end_that_ends_nothing_may_come():
    """The model's own last token, where it is ignored."""
    asked = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    least = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, min_tokens=12)
    with engine() as made:
        one, other = Heard(), Heard()
        made.submit([7, 8], asked, one), made.submit([7, 8], least, other)
        one.wait(), other.wait()
    assert one.tokens == other.tokens


def test_a_stop_that_is_complete_too_early_is_text():
    t = Detokenizer(Letters(), ("ab", "b!"), min_tokens=4)
    parts = [t.push(ord(c)) for c in "abcab"]
    assert (parts, t.is_stopped) == (["", "a", "bc", "", ""], True)
    t = Detokenizer(Letters(), ("bc",), min_tokens=2)
    assert "".join([t.push(ord(c)) for c in "abc"]) == "a" and t.is_stopped  # it is complete late
    t = Detokenizer(Letters(), ("b",), min_tokens=2)
    assert "".join([t.push(ord(c)) for c in "ab"] + [t.finish()]) == "ab" and not t.is_stopped


def test_bits_of_all_tokens_but_some():
    bits = np.unpackbits(bitmask_without([0, 9, 40], 12), bitorder="little")
    assert np.flatnonzero(bits).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


def test_more_than_may_come_is_refused():
    with pytest.raises(BadParameter, match="min_tokens is 9, above max_tokens"):
        SamplingParams(min_tokens=9, max_tokens=8)


def test_it_goes_with_grammars_and_penalties(tmp_path):
    """A grammar that has nothing but its end is over all the same."""
    folder = write_tiny_chat(tmp_path / "model")
    with LLM(str(folder), target="cpu", dtype="f32", max_model_len=200, max_num_seqs=4) as llm:
        asked = [{"regex": "[a-c]*"}, {"regex": "[a-c]{3}"}, {"presence_penalty": 2.0},
                 {"regex": "[a-c]*", "frequency_penalty": 2.0}]
        params = [SamplingParams(min_tokens=40, max_tokens=60, seed=k, **a)
                  for k, a in enumerate(asked)]
        (eos,) = llm.tokenizer.eos
        asked.append({"logit_bias": {eos: 100}})
        params.append(SamplingParams(min_tokens=40, max_tokens=60, seed=9, **asked[-1]))
        found = [len(c.tokens) for c in llm.generate(["x"] * len(params), params)]
    assert found[1] == 3 and min(found[0], found[2], found[3]) >= 40
    assert found[4] == 40
