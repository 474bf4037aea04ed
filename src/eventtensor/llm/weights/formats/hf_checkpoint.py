"""Hugging Face folders as checkpoints: config.json and mapped safetensors, one file or shards with
an index. The tokenizer of a folder is in text/tokenizer_files.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ....errors import (
    BadModelFile,
    MissingTensor,
    UnexpectedTensor,
    UnsupportedTensorType,
    WrongTensorShape,
)
from ...array_types import Array, Shape
from ...model.model_config import ModelConfig, checked, from_hf, shown, token_ids
from ...model_files import check_size, read_json
from ...optional_packages import need
from ..checkpoint import check_name, check_tensors, file_names

_ENDS = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "model.layers.{}.input_layernorm.weight",
    "wq": "model.layers.{}.self_attn.q_proj.weight",
    "wk": "model.layers.{}.self_attn.k_proj.weight",
    "wv": "model.layers.{}.self_attn.v_proj.weight",
    "q_norm": "model.layers.{}.self_attn.q_norm.weight",
    "k_norm": "model.layers.{}.self_attn.k_norm.weight",
    "wo": "model.layers.{}.self_attn.o_proj.weight",
    "mlp_norm": "model.layers.{}.post_attention_layernorm.weight",
    "w_gate": "model.layers.{}.mlp.gate_proj.weight",
    "w_up": "model.layers.{}.mlp.up_proj.weight",
    "w_down": "model.layers.{}.mlp.down_proj.weight",
    "router": "model.layers.{}.mlp.gate.weight",
    "experts.w_gate": "model.layers.{}.mlp.experts.{}.gate_proj.weight",
    "experts.w_up": "model.layers.{}.mlp.experts.{}.up_proj.weight",
    "experts.w_down": "model.layers.{}.mlp.experts.{}.down_proj.weight",
}
# Old Llama files store the RoPE frequencies, which follow from the config.
_FREQUENCIES = "model.layers.{}.self_attn.rotary_emb.inv_freq"
# The import of ml_dtypes registers bfloat16 with NumPy, as safetensors needs it.
_DTYPES = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}


class HfCheckpoint:
    """The checkpoint of a folder; `files` have the tensors."""

    def __init__(self, folder: Path) -> None:
        self.config = read_config(folder)
        self.files = _tensor_files(folder)
        self._names = file_names(self.config, _ENDS, _LAYER)
        self._home: dict[str, Any] = {}
        self._check(folder)

    def tensor(self, name: str) -> Array:
        key = self._names[check_name(self.config, name)]
        found: Array = self._home[key].get_tensor(key)
        if name == "head" and self.config.tied:
            self._check_tied(key, found)
        return found.astype(np.float32) if found.dtype == np.float16 else found

    def _check(self, folder: Path) -> None:
        found: dict[str, Shape] = {}
        for path in self.files:
            shard = _open(path)
            for key in shard.keys():  # noqa: SIM118 - a shard is not a mapping
                if key in found:
                    raise UnexpectedTensor(f"{key} is in two files of {folder}")
                entry = shard.get_slice(key)
                if entry.get_dtype() not in _DTYPES:
                    raise UnsupportedTensorType(
                        f"{key} is {entry.get_dtype()}; supported are {', '.join(_DTYPES)}"
                    )
                found[key], self._home[key] = tuple(entry.get_shape()), shard
        spare = [_FREQUENCIES.format(k) for k in range(self.config.layers)]
        if self.config.tied:
            spare.append(_ENDS["head"])
        _check_index(folder, found)
        check_tensors(self.config, self._names, found, spare)

    def _check_tied(self, key: str, embed: Array) -> None:
        """Checks that a stored head equals the embedding; otherwise it would be dropped
        silently."""
        own = self._home.get(_ENDS["head"])
        if own is None:
            return
        head = own.get_tensor(_ENDS["head"])
        if head.shape != embed.shape:
            raise WrongTensorShape(
                f"{_ENDS['head']} is {head.shape}; the config ties it to {key}, {embed.shape}"
            )
        if not np.array_equal(head, embed):
            raise UnexpectedTensor(
                f"{_ENDS['head']} differs from {key}, but tie_word_embeddings is true",
                hint="set tie_word_embeddings to false, or take the tensor out of the file",
            )


def read_config(folder: Path) -> ModelConfig:
    """Reads config.json, and the end-of-text tokens of generation_config.json if it has some."""
    config = from_hf(read_json(folder / "config.json"))
    extra = folder / "generation_config.json"
    if extra.is_file():
        eos = token_ids(read_json(extra), "eos_token_id")
        config = checked(replace(config, eos=eos or config.eos))
    return config


def _tensor_files(folder: Path) -> tuple[Path, ...]:
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        return tuple(folder / name for name in sorted(set(_index(index).values())))
    if single.is_file():
        return (single,)
    raise BadModelFile(
        f"{folder} has neither model.safetensors nor model.safetensors.index.json",
        hint="pickled checkpoints (.bin) are not read: save the model as safetensors",
    )


def _index(path: Path) -> Mapping[str, str]:
    files = read_json(path).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(f, str) for f in files.values()):
        raise BadModelFile(f"{path} has no weight_map of tensors to files")
    for name in set(files.values()):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise BadModelFile(f"{path} names {shown(name)}, which is no file beside it")
    return files


def _check_index(folder: Path, found: Mapping[str, Shape]) -> None:
    path = folder / "model.safetensors.index.json"
    for key, name in (_index(path) if path.is_file() else {}).items():
        if key not in found:
            raise MissingTensor(f"{path.name} promises {key} in {name}, which does not have it")


def _open(path: Path) -> Any:
    safetensors = need("safetensors")
    check_size(path, None)
    try:
        return safetensors.safe_open(path, framework="numpy")
    except (OSError, safetensors.SafetensorError) as e:
        raise BadModelFile(f"{path} cannot be read: {e}") from e
