"""The architecture of a model, read from config.json of Hugging Face. An unsupported key that could
change the model is an error; keys that cannot change it are listed here. GGUF metadata is read in
formats/gguf_checkpoint.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import BadModelConfig, UnsupportedModel

_FAMILIES = {
    "LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe",
}

# Options of these models, and the values with which the program computes them.
_FIXED: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "hidden_act": ("silu",),
    "use_sliding_window": (False,),
    "sliding_window": (None,),
    "partial_rotary_factor": (1, None),
    "rope_interleaved": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
}

# The same for MoE models: every layer has experts.
_FIXED_MOE: dict[str, tuple[Any, ...]] = {
    "decoder_sparse_step": (1,),
    "mlp_only_layers": ([], None),
}

_READ = {
    "architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "intermediate_size", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "tie_word_embeddings", "max_position_embeddings",
    "bos_token_id", "eos_token_id", "layer_types",
}
# num_local_experts is what newer versions of transformers call num_experts.
_READ_MOE = {
    "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
    "norm_topk_prob",
}

# For training, for other programs, or about the origin of the file.
_NO_EFFECT = {
    "model_type", "dtype", "torch_dtype", "transformers_version", "use_cache", "pad_token_id",
    "unk_token_id", "sep_token_id", "decoder_start_token_id",
    "initializer_range", "attention_dropout", "pretraining_tp", "max_window_layers",
    "is_llama_config", "transformers.js_config", "return_dict", "output_hidden_states",
    "output_attentions", "chunk_size_feed_forward", "id2label", "label2id", "problem_type",
    "tokenizer_class", "task_specific_params", "generation_config", "unsloth_fixed",
    "unsloth_version",
}
_NO_EFFECT_MOE = {"output_router_logits", "router_aux_loss_coef"}


# Far more than published models have: a broken number is refused before names are built.
MAX_LAYERS, MAX_PIECES = 1024, 1 << 17
MAX_COUNT = (1 << 31) - 1
MAX_NUMBER = 1e30  # eps, theta and factors, within float32


@dataclass(frozen=True)
class Llama3Rope:
    """Llama 3's stretch of slow RoPE frequencies beyond the context of its first training."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True)
class Experts:
    """Each token goes to the top `top` of `count` experts. `normed`: their shares sum to 1."""

    count: int
    top: int
    normed: bool


@dataclass(frozen=True)
class ModelConfig:
    """`family` is llama, qwen3 or qwen3_moe. `intermediate` is that of one expert if there are
    `experts`. `tied`: the head is the embedding. `qk_norm`: RMSNorm of queries and keys comes
    before RoPE."""

    family: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Rope | None
    tied: bool
    qk_norm: bool
    max_position: int
    bos: tuple[int, ...]
    eos: tuple[int, ...]
    experts: Experts | None = None


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """The model of a config.json."""
    family = _family(config)
    moe = family == "qwen3_moe"
    _check_options(config, moe)
    hidden, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    kv_heads = count(config, "num_key_value_heads", heads)
    # Qwen3Config's own default is 128, whatever the hidden size.
    default_dim = 128 if family == "qwen3" else hidden // heads
    theta, scaling = _rope(config)
    return checked(ModelConfig(
        family=family,
        vocab=count(config, "vocab_size"),
        hidden=hidden,
        layers=count(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=count(config, "head_dim", default_dim),
        intermediate=count(config, "moe_intermediate_size" if moe else "intermediate_size"),
        norm_eps=number(config, "rms_norm_eps"),
        rope_theta=theta,
        rope_scaling=scaling,
        tied=_flag(config, "tie_word_embeddings"),
        qk_norm=family != "llama",
        max_position=count(config, "max_position_embeddings"),
        bos=token_ids(config, "bos_token_id"),
        eos=token_ids(config, "eos_token_id"),
        experts=_experts(config) if moe else None,
    ))


def checked(config: ModelConfig) -> ModelConfig:
    """The same config, if its numbers fit together."""
    pieces = config.layers * (1 if config.experts is None else config.experts.count)
    if config.layers > MAX_LAYERS or pieces > MAX_PIECES:
        raise BadModelConfig(f"a model of {config.layers} layers, {pieces} MLPs in all, is beyond "
                             f"{MAX_LAYERS} layers and {MAX_PIECES} MLPs")
    for name, tokens in (("bos", config.bos), ("eos", config.eos)):
        for t in tokens:
            if not 0 <= t < config.vocab:
                raise BadModelConfig(f"{name}_token_id is {t}; there are {config.vocab} tokens")
    if config.heads % config.kv_heads:
        raise BadModelConfig(
            f"{config.heads} attention heads cannot share {config.kv_heads} key-value heads evenly"
        )
    if config.head_dim % 2:
        raise BadModelConfig(f"RoPE turns pairs, but a head has {config.head_dim} channels")
    x = config.experts
    if x is not None and x.top > x.count:
        raise BadModelConfig(
            f"num_experts_per_tok is {x.top}, but there are num_experts = {x.count}"
        )
    return config


def token_ids(config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """A key that holds a token, several, or none."""
    match config.get(key):
        case None:
            return ()
        case bool():
            pass
        case int(one):
            return (one,)
        case list(many) if all(isinstance(t, int) and not isinstance(t, bool) for t in many):
            return tuple(many)
    raise BadModelConfig(f"{key} is {shown(config[key])}; it must be a token id or a list of them")


def _family(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or not isinstance(named[0], str):
        raise BadModelConfig(
            f"architectures is {shown(named)}; it must be a list of one of {', '.join(_FAMILIES)}"
        )
    if named[0] not in _FAMILIES:
        raise UnsupportedModel(
            f"architectures is {named!r}; supported are {', '.join(_FAMILIES)}"
        )
    return _FAMILIES[named[0]]


def _experts(config: Mapping[str, Any]) -> Experts:
    key = "num_local_experts" if "num_local_experts" in config else "num_experts"
    return Experts(count(config, key), count(config, "num_experts_per_tok"),
                   _flag(config, "norm_topk_prob"))


def _check_options(config: Mapping[str, Any], moe: bool) -> None:
    fixed = _FIXED | (_FIXED_MOE if moe else {})
    others = _READ | _NO_EFFECT | (_READ_MOE | _NO_EFFECT_MOE if moe else set())
    windowed = bool(config.get("use_sliding_window", "use_sliding_window" not in config))
    for key, value in config.items():
        if key in fixed:
            # Qwen3 configs name a window even where use_sliding_window turns it off.
            if key == "sliding_window" and not windowed:
                continue
            if value not in fixed[key]:
                words = " or ".join(repr(v) for v in fixed[key])
                raise UnsupportedModel(f"{key} is {shown(value)}; supported is {words}")
        elif key not in others and not key.startswith("_") and value:
            raise UnsupportedModel(
                f"{key} is {shown(value)}, an option that is not known",
                hint="if it cannot change the model's numbers, take it out of config.json",
            )
    types = config.get("layer_types") or ()
    if not isinstance(types, list | tuple):
        raise BadModelConfig(f"layer_types is {shown(types)}; it must be a list")
    for kind in types:
        if kind != "full_attention":
            raise UnsupportedModel(f"layer_types has {shown(kind)}; supported is 'full_attention'")


def _rope(config: Mapping[str, Any]) -> tuple[float, Llama3Rope | None]:
    """Newer configs hold all of RoPE in rope_parameters, older ones in rope_theta and
    rope_scaling."""
    if config.get("rope_parameters") and config.get("rope_scaling"):
        raise BadModelConfig("rope_parameters and rope_scaling are both given; one must go")
    key = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    given = config.get(key) or {}
    if not isinstance(given, Mapping):
        raise BadModelConfig(f"{key} is {shown(given)}; it must be a table")
    holder = given if "rope_theta" in given else config
    theta = number(holder, "rope_theta", 10000.0)
    kind = given.get("rope_type", given.get("type", "default"))
    match kind:
        case "default":
            known, scaling = set[str](), None
        case "llama3":
            known = {"factor", "low_freq_factor", "high_freq_factor",
                     "original_max_position_embeddings"}
            scaling = Llama3Rope(
                number(given, "factor"),
                number(given, "low_freq_factor"),
                number(given, "high_freq_factor"),
                count(given, "original_max_position_embeddings"),
            )
        case _:
            raise UnsupportedModel(
                f"{key} has rope_type {shown(kind)}; supported are 'default' and 'llama3'"
            )
    for name, value in given.items():
        if name == "partial_rotary_factor" and value == 1:
            continue
        if name not in known | {"rope_type", "type", "rope_theta"}:
            raise UnsupportedModel(f"{key} has {name} = {shown(value)}, which is not supported")
    return theta, scaling


def count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A key that holds a positive integer."""
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or not 1 <= value <= MAX_COUNT:
        raise BadModelConfig(
            f"{key} is {shown(value)}; it must be a positive integer of up to {MAX_COUNT}")
    return value


def number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A key that holds a positive number."""
    value = config.get(key)
    value = default if value is None else value
    if type(value) not in (int, float) or not 0 < value <= MAX_NUMBER:  # type: ignore[operator]
        raise BadModelConfig(f"{key} is {shown(value)}; it must be a positive number, not Infinity")
    return float(value)  # type: ignore[arg-type]


def shown(value: object) -> str:
    """A short text of any value of a file."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits, or a nest
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]} .."


def _flag(config: Mapping[str, Any], key: str) -> bool:
    value = config.get(key, False)
    if not isinstance(value, bool):
        raise BadModelConfig(f"{key} is {shown(value)}; it must be true or false")
    return value
