"""Tiny models of transformers, saved as Hugging Face folders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": 0, "eos_token_id": [1, 2],
}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rope_parameters": _LLAMA3}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3_moe": ("Qwen3Moe", {"head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2,
                               "moe_intermediate_size": 48}),
}


@dataclass(frozen=True)
class Saved:
    folder: Path
    model: Any  # the transformers model that was saved there


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Saved]:
    """save(family, dtype=, shard=, **options of the config)"""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    def make(
        family: str, dtype: str = "float32", shard: str = "1GB", **options: Any
    ) -> Saved:
        torch.manual_seed(3)
        kind, own = _KINDS[family]
        config = getattr(transformers, f"{kind}Config")(**_SIZES | own | options)
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
        for parameter in model.parameters():  # norms start at 1, which hides mistakes
            torch.nn.init.normal_(parameter, 0.5, 0.2)
        model = model.to(getattr(torch, dtype))
        folder = tmp_path / family
        model.save_pretrained(folder, max_shard_size=shard)
        return Saved(folder, model)

    return make
