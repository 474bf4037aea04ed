"""SmolLM2 word for word as transformers: with weights, order of rows, RoPE or tokenizer wrong it
babbles."""

from __future__ import annotations

import pytest

from benchmarks.cpu import reference
from eventtensor import LLM, SamplingParams
from eventtensor.errors import MissingPackage
from eventtensor.llm.weights.model_source import open_model
from tests.engine.batch_invariance import tokens_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences what a prime number is, and give three examples of prime numbers.",
    "List three things that one should pack for a week in the mountains.",
    "Why is the sky blue?",
)


@pytest.mark.full
def test_smollm2_says_word_for_word_what_transformers_says():
    """Five prompts in one batch, 64 tokens each. Where transformers, given the answer so far, goes
    on with the same token at every place, its own greedy answer is this one; so one pass does."""
    try:
        model = open_model("smollm2")
    except MissingPackage as e:
        pytest.skip(str(e))
    theirs = reference(model, "f32")
    prompts = [model.tokenizer.chat([{"role": "user", "content": p}]) for p in PROMPTS]
    with LLM(model, target="cpu", dtype="f32", max_model_len=160, max_num_seqs=5) as ours:
        found = tokens_of(ours.generate(prompts, SamplingParams(temperature=0, max_tokens=64)))
    for prompt, tokens in zip(prompts, found, strict=True):
        with torch.no_grad():
            logits = theirs(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :]
        wanted = logits.argmax(dim=-1).tolist()
        assert tokens == wanted[: len(tokens)]
        assert len(tokens) == 64 or wanted[len(tokens)] in model.config.eos
    assert model.tokenizer.decode(found[0]) == "The capital of France is Paris."
    assert max(len(tokens) for tokens in found) == 64
