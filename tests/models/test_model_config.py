"""Published config.json files give the right architecture, and an unsupported key is refused by
name."""

from __future__ import annotations

import pytest

from eventtensor.errors import BadModelConfig, UnsupportedModel
from eventtensor.llm.model.model_config import Experts, Llama3Rope, from_hf
from eventtensor.llm.model.model_presets import PRESETS

LLAMA_1B = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128256,
}
QWEN_8B = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
    "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}

QWEN_30B = {
    **QWEN_8B, "architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1,
    "hidden_size": 2048, "intermediate_size": 6144, "max_window_layers": 48, "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": True,
    "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": False, "router_aux_loss_coef": 0.001,
}


def test_published_configs_give_the_known_shapes():
    assert from_hf(LLAMA_1B) == PRESETS["llama-3.2-1b"]
    assert from_hf(QWEN_8B) == PRESETS["qwen3-8b"]
    assert from_hf(QWEN_30B) == PRESETS["qwen3-30b-a3b"]


def test_experts_are_read_by_their_old_and_new_names():
    newer = {k: v for k, v in QWEN_30B.items() if k not in ("num_experts", "norm_topk_prob")}
    assert from_hf({**newer, "num_local_experts": 64}).experts == Experts(64, 8, False)
    plain = {k: v for k, v in QWEN_30B.items() if k not in ("head_dim", "mlp_only_layers")}
    assert from_hf(plain).head_dim == 64


@pytest.mark.parametrize(("key", "value", "shown"), [
    ("decoder_sparse_step", 2, "supported is 1"), ("mlp_only_layers", [0], "supported is []"),
    ("num_shared_experts", 1, "not known"),
])
def test_layers_without_experts_are_refused_by_the_name_of_the_key(key, value, shown):
    with pytest.raises(UnsupportedModel) as caught:
        from_hf({**QWEN_30B, key: value})
    assert key in str(caught.value) and shown in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [
    ("num_experts", 0), ("num_experts", None), ("num_experts_per_tok", 129),
    ("moe_intermediate_size", "wide"), ("norm_topk_prob", 1),
])
def test_nonsense_about_experts_is_named(key, value):
    with pytest.raises(BadModelConfig, match=key):
        from_hf({**QWEN_30B, key: value})


def test_newer_configs_hold_rope_in_one_table():
    old = {k: v for k, v in LLAMA_1B.items() if k not in ("rope_theta", "rope_scaling")}
    rope = {**LLAMA_1B["rope_scaling"], "rope_theta": 500000.0}
    assert from_hf({**old, "rope_parameters": rope}) == PRESETS["llama-3.2-1b"]
    plain = from_hf({**old, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}})
    assert (plain.rope_theta, plain.rope_scaling) == (7.0, None)
    with pytest.raises(BadModelConfig, match="rope_parameters and rope_scaling"):
        from_hf({**LLAMA_1B, "rope_parameters": rope})


def test_what_a_config_leaves_out_has_the_default_of_its_family():
    llama = {k: v for k, v in LLAMA_1B.items() if k not in ("head_dim", "num_key_value_heads")}
    assert (from_hf(llama).head_dim, from_hf(llama).kv_heads) == (64, 32)
    qwen = {k: v for k, v in QWEN_8B.items() if k != "head_dim"} | {"hidden_size": 2560}
    assert from_hf(qwen).head_dim == 128


def test_a_window_that_is_turned_off_is_none():
    assert from_hf({**QWEN_8B, "sliding_window": 4096}) == PRESETS["qwen3-8b"]


@pytest.mark.parametrize(("key", "value", "shown"), [
    ("architectures", ["MixtralForCausalLM"], "LlamaForCausalLM, Qwen3ForCausalLM"),
    ("attention_bias", True, "supported is False"),
    ("mlp_bias", True, "supported is False"),
    ("hidden_act", "gelu", "supported is 'silu'"),
    ("use_sliding_window", True, "supported is False"),
    ("sliding_window", 4096, "supported is None"),
    ("layer_types", ["full_attention", "sliding_attention"], "sliding_attention"),
    ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}, "'default' and 'llama3'"),
    ("rope_scaling", {"type": "linear", "factor": 4.0}, "'default' and 'llama3'"),
    ("rope_scaling", {"rope_type": "default", "attention_factor": 2.0}, "attention_factor = 2.0"),
    ("partial_rotary_factor", 0.5, "supported is 1"),
    ("quantization_config", {"bits": 4}, "not known"),
    ("num_experts", 8, "not known"),
])
def test_an_unsupported_option_is_named_with_what_it_holds(key, value, shown):
    with pytest.raises(UnsupportedModel) as caught:
        from_hf({**LLAMA_1B, key: value})
    assert key in str(caught.value) and shown in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [
    ("architectures", []), ("hidden_size", None), ("num_hidden_layers", 0), ("vocab_size", "many"),
    ("rms_norm_eps", -1.0), ("tie_word_embeddings", 1), ("eos_token_id", "end"),
    ("rope_theta", "big"), ("bos_token_id", True), ("rope_scaling", "llama3"),
])
def test_nonsense_in_a_key_is_named(key, value):
    with pytest.raises(BadModelConfig, match=key):
        from_hf({**LLAMA_1B, key: value})


def test_numbers_that_do_not_fit_together_are_refused():
    with pytest.raises(BadModelConfig, match="32 attention heads cannot share 5"):
        from_hf({**LLAMA_1B, "num_key_value_heads": 5})
    with pytest.raises(BadModelConfig, match="33 channels"):
        from_hf({**LLAMA_1B, "head_dim": 33})


def test_several_end_tokens_are_kept():
    assert from_hf({**LLAMA_1B, "eos_token_id": [5, 6]}).eos == (5, 6)
    assert from_hf({**LLAMA_1B, "eos_token_id": None}).eos == ()
    assert PRESETS["llama-3.1-8b"].rope_scaling == Llama3Rope(8.0, 1.0, 4.0, 8192)
