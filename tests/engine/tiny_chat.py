"""A tiny chat model as a Hugging Face folder: the random weights of `random:tiny-llama` (and so its
kernel), and a tokenizer of single bytes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from eventtensor.llm.weights.checkpoint import file_names
from eventtensor.llm.weights.formats.hf_checkpoint import _ENDS, _LAYER
from eventtensor.llm.weights.model_source import random_checkpoint

BEGIN, END, TURN = "<|begin|>", "<|end|>", "<|turn|>"
_NEVER = (0xC0, 0xC1, 0xFF)  # bytes that are in no UTF-8 text: their places go to the special ones
TEMPLATE = (
    "{% for m in messages %}<|turn|>{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant: {% endif %}"
)


def write_tiny_chat(folder: Path, seed: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = random_checkpoint(f"tiny-llama?seed={seed}")
    c, names = checkpoint.config, file_names(checkpoint.config, _ENDS, _LAYER)
    rope = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": c.vocab,
        "hidden_size": c.hidden, "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim, "rms_norm_eps": c.norm_eps,
        "intermediate_size": c.intermediate, "rope_theta": c.rope_theta, "rope_scaling": rope,
        "tie_word_embeddings": c.tied, "max_position_embeddings": c.max_position,
        "bos_token_id": 0, "eos_token_id": 1, "hidden_act": "silu",
    }))
    tensors = {names[n]: np.array(checkpoint.tensor(n), np.float32) for n in names}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    _tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": BEGIN, "eos_token": END, "chat_template": TEMPLATE}))
    return folder


def _tokenizer() -> tokenizers.Tokenizer:
    letters = dict(zip(_bytes_in_order(), _letters_in_order(), strict=True))
    texts = [BEGIN, END, TURN, *(letters[b] for b in range(256) if b not in _NEVER)]
    made = tokenizers.Tokenizer(models.BPE({t: k for k, t in enumerate(texts)}, []))
    made.add_special_tokens([BEGIN, END, TURN])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


def _bytes_in_order() -> list[int]:
    """The order of GPT-2: bytes that print as they are, then the others."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return shown + [b for b in range(256) if b not in shown]


def _letters_in_order() -> list[str]:
    shown = _bytes_in_order()[:188]
    return [*map(chr, shown), *(chr(256 + k) for k in range(256 - len(shown)))]
