"""GGUF files of Llama and Qwen3 models as checkpoints: the config from the metadata, tensors under
logical names, dequantised on access, rows in the order of Hugging Face. gguf_file.py reads the
container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import UnsupportedModel
from ...array_types import Array
from ...model.model_config import Llama3Rope, ModelConfig, checked, count, number, shown, token_ids
from ...model.rope import frequencies, scale_frequencies
from ..checkpoint import check_name, check_tensors, file_names
from .gguf_file import GgufFile, read_gguf

FAMILIES = ("llama", "qwen3")
_ENDS = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight"}
_LAYER = {
    "attn_norm": "blk.{}.attn_norm.weight",
    "wq": "blk.{}.attn_q.weight",
    "wk": "blk.{}.attn_k.weight",
    "wv": "blk.{}.attn_v.weight",
    "q_norm": "blk.{}.attn_q_norm.weight",
    "k_norm": "blk.{}.attn_k_norm.weight",
    "wo": "blk.{}.attn_output.weight",
    "mlp_norm": "blk.{}.ffn_norm.weight",
    "w_gate": "blk.{}.ffn_gate.weight",
    "w_up": "blk.{}.ffn_up.weight",
    "w_down": "blk.{}.ffn_down.weight",
}
_FACTORS = "rope_freqs.weight"  # divisors of the RoPE frequencies of Llama 3

_READ = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.freq_base",
    "rope.dimension_count", "rope.scaling.type",
}  # fmt: skip


class GgufCheckpoint:
    def __init__(self, path: Path) -> None:
        self._file = read_gguf(path)
        self.files = (path,)
        self.config = config_of(self._file)
        self._names = file_names(self.config, _ENDS, _LAYER)
        found = {k: e.shape for k, e in self._file.tensors.items()}
        check_tensors(self.config, self._names, found, (_FACTORS,))

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._file.metadata

    def tensor(self, name: str) -> Array:
        c = self.config
        found = self._file.tensors[self._names[check_name(c, name)]].values()
        part = name.rpartition(".")[2]
        if c.family == "llama" and part in ("wq", "wk"):
            return _split_pairs(found, c.heads if part == "wq" else c.kv_heads)
        return found


def _split_pairs(rows: Array, heads: int) -> Array:
    """llama.cpp stores the two channels of a RoPE pair side by side, Hugging Face half a head
    apart."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def config_of(file: GgufFile) -> ModelConfig:
    """The model that the metadata describes."""
    meta = file.metadata
    family = meta.get("general.architecture")
    if family not in FAMILIES:
        raise UnsupportedModel(
            f"general.architecture is {shown(family)}; supported are {', '.join(FAMILIES)}"
        )
    own = {k.removeprefix(f"{family}."): v for k, v in meta.items() if k.startswith(f"{family}.")}
    _check_options(family, own)
    hidden, heads = count(own, "embedding_length"), count(own, "attention.head_count")
    head_dim = count(own, "attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, head_dim) != head_dim:
            raise UnsupportedModel(f"{family}.{key} is {shown(own[key])}; supported is {head_dim}")
    plain = ModelConfig(
        family=family,
        vocab=count(own, "vocab_size", _tokens(meta)),
        hidden=hidden,
        layers=count(own, "block_count"),
        heads=heads,
        kv_heads=count(own, "attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=count(own, "feed_forward_length"),
        norm_eps=_float(own, "attention.layer_norm_rms_epsilon"),
        rope_theta=_float(own, "rope.freq_base", 10000.0),
        rope_scaling=None,
        tied=_ENDS["head"] not in file.tensors,
        qk_norm=family == "qwen3",
        max_position=count(own, "context_length"),
        bos=token_ids(meta, "tokenizer.ggml.bos_token_id"),
        eos=_ends(meta),
    )
    return checked(_with_scaling(plain, file))


def _tokens(meta: Mapping[str, Any]) -> int | None:
    found = meta.get("tokenizer.ggml.tokens")
    return len(found) or None if isinstance(found, list) else None


def _check_options(family: str, own: Mapping[str, Any]) -> None:
    for key, value in own.items():
        if key == "rope.scaling.type" and value != "none":
            raise UnsupportedModel(f"{family}.{key} is {shown(value)}; supported is 'none'")
        if key not in _READ and value:
            raise UnsupportedModel(f"{family}.{key} is {shown(value)}, an option that is not known")


def _ends(meta: Mapping[str, Any]) -> tuple[int, ...]:
    """All tokens that end a text or a chat turn, in the order of their keys."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    found = [t for k in keys for t in token_ids(meta, f"tokenizer.ggml.{k}")]
    return tuple(dict.fromkeys(found))


def _with_scaling(plain: ModelConfig, file: GgufFile) -> ModelConfig:
    """Adds Llama 3's scaling, which converters write as a table of factors. All published models
    share its other parameters, so the largest factor determines it; the table must then agree."""
    entry = file.tensors.get(_FACTORS)
    if entry is None:
        return plain
    if entry.shape != (plain.head_dim // 2,) or not _is_llama3(entry.values(), plain):
        raise UnsupportedModel(
            f"{_FACTORS} is not the table of Llama 3 (low_freq_factor 1, high_freq_factor 4, "
            "original context 8192), which is the one that is supported"
        )
    return replace(plain, rope_scaling=_scaling(entry.values()))


def _scaling(factors: Array) -> Llama3Rope:
    return Llama3Rope(float(factors.max()), 1.0, 4.0, 8192)


def _is_llama3(factors: Array, plain: ModelConfig) -> bool:
    if not np.isfinite(factors).all() or factors.max() <= 0:
        return False
    base = frequencies(plain)
    return np.allclose(factors, base / scale_frequencies(base, _scaling(factors)), rtol=1e-4)


def _float(own: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """The shortest decimal of the file's float32: 1e-5, not 9.99999975e-06."""
    return float(str(np.float32(number(own, key, default))))
