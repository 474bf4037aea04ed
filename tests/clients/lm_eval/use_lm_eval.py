"""lm-eval, with tasks of its three kinds."""

from __future__ import annotations

import math

from features import SMOLLM2, feature, main
from local_tasks import ROWS, TEXTS, evaluate

COMPLETIONS, CHAT = "local-completions", "local-chat-completions"


def scored(samples, count):
    """Log probabilities of each sample's continuations, and whether they are the likeliest."""
    found = [[(float(logp), greedy in (True, "True")) for logp, greedy in s["filtered_resps"]]
             for s in samples]
    assert len(found) == count and all(logp < 0 for some in found for logp, _ in some)
    return found


@feature("multiple choice")
def multiple_choice():
    results, samples = evaluate("local_choice", COMPLETIONS, SMOLLM2)
    found = scored(samples, len(ROWS))
    assert {len(some) for some in found} == {3}
    assert results["acc,none"] >= 0.6
    assert any(greedy for some in found for _, greedy in some)
    assert not all(greedy for some in found for _, greedy in some)


@feature("multiple choice, several requests at a time")
def concurrent():
    alone = scored(evaluate("local_choice", COMPLETIONS, SMOLLM2)[1], len(ROWS))
    for options in ({"num_concurrent": 4}, {"batch_size": 8}):
        found = scored(evaluate("local_choice", COMPLETIONS, SMOLLM2, **options)[1], len(ROWS))
        assert found == alone


@feature("multiple choice, prompts as text")
def of_texts():
    alone = scored(evaluate("local_choice", COMPLETIONS, SMOLLM2)[1], len(ROWS))
    found = evaluate("local_choice", COMPLETIONS, SMOLLM2, tokenized_requests=False)[1]
    assert scored(found, len(ROWS)) == alone


@feature("loglikelihood_rolling")
def rolling():
    results, samples = evaluate("local_rolling", COMPLETIONS, SMOLLM2, max_length=256)
    assert len(samples) == len(TEXTS)
    assert all(float(s["filtered_resps"][0]) < 0 for s in samples)
    assert math.isfinite(results["bits_per_byte,none"])


@feature("generate_until")
def generated():
    _, samples = evaluate("local_answers", COMPLETIONS, SMOLLM2)
    assert "Paris" in samples[0]["filtered_resps"][0]


@feature("generate_until without a tokenizer")
def generated_without_tokenizer():
    _, samples = evaluate("local_answers", COMPLETIONS, SMOLLM2, tokenizer_backend="None")
    assert "Paris" in samples[0]["filtered_resps"][0]


@feature("generate_until as a chat")
def generated_as_chat():
    _, samples = evaluate("local_answers", CHAT, SMOLLM2)
    assert len(samples) == len(ROWS) and all(s["filtered_resps"][0] for s in samples)


main()
