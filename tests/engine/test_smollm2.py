"""SmolLM2 word for word as transformers: with weights, order of rows, RoPE or tokenizer wrong it
babbles."""

from __future__ import annotations

import numpy as np
import pytest
from engine.company import tokens_of

from eventtensor import LLM, SamplingParams
from eventtensor.errors import MissingPackage
from eventtensor.models.checkpoint import file_names
from eventtensor.models.formats.hf import _ENDS, _LAYER
from eventtensor.models.source import open_model

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences what a prime number is, and give three examples of prime numbers.",
    "List three things that one should pack for a week in the mountains.",
    "Why is the sky blue?",
)


def reference(model):
    """The same weights in transformers, in float32."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    c, get = model.config, model.checkpoint.tensor
    with torch.device("meta"):
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.intermediate,
            num_hidden_layers=c.layers, num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads, rms_norm_eps=c.norm_eps, tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            max_position_embeddings=c.max_position, bos_token_id=1, eos_token_id=2,
        ))
    names = file_names(c, _ENDS, _LAYER)
    weights = {key: torch.from_numpy(np.array(get(n), np.float32)) for n, key in names.items()}
    made.load_state_dict(weights | {"lm_head.weight": weights[names["embed"]]}, assign=True)
    made.model.rotary_emb = type(made.model.rotary_emb)(made.config)
    return torch, made.eval()


def test_smollm2_says_word_for_word_what_transformers_says():
    """Five prompts in one batch, 64 tokens each. Where transformers, given the answer so far, goes
    on with the same token at every place, its own greedy answer is this one; so one pass does."""
    try:
        model = open_model("smollm2")
    except MissingPackage as e:
        pytest.skip(str(e))
    torch, theirs = reference(model)
    prompts = [model.tokenizer.chat([{"role": "user", "content": p}]) for p in PROMPTS]
    with LLM(model, target="cpu", dtype="f32", context=160, max_running=5) as ours:
        found = tokens_of(ours.generate(prompts, SamplingParams(temperature=0, max_tokens=64)))
    for prompt, tokens in zip(prompts, found, strict=True):
        with torch.no_grad():
            logits = theirs(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :]
        wanted = logits.argmax(dim=-1).tolist()
        assert tokens == wanted[: len(tokens)]
        assert len(tokens) == 64 or wanted[len(tokens)] in model.config.eos
    assert model.tokenizer.decode(found[0]) == "The capital of France is Paris."
    assert max(len(tokens) for tokens in found) == 64
