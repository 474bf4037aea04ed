"""Files with random damage: every one is read, refused with an error of ours, or made again; in
bounded time and memory, and with nothing left behind."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import eventtensor as et
from eventtensor.config import environment
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.weights.formats.hf_checkpoint import _ENDS, _LAYER, HfCheckpoint
from eventtensor.llm.weights.formats.random_checkpoint import RandomCheckpoint
from eventtensor.llm.weights.model_source import open_model
from eventtensor.llm.weights.weight_cache import file_digest, packed_weights
from eventtensor.runtime import cpp_build
from tests.support.fuzz import damaged, odd, survives
from tests.support.gguf_files import tensors, write

SMALL = replace(PRESETS["tiny-llama"], rope_scaling=None, vocab=64, hidden=32, heads=2, kv_heads=1,
                head_dim=16, intermediate=32, layers=1)


def only(folder: Path, *names: str) -> None:
    """Nothing else is in the folder."""
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)


def read_all(config: ModelConfig, tensor: Callable[[str], np.ndarray]) -> None:
    for name in ("embed", "head", "layers.0.wq", "layers.0.w_down"):
        assert tensor(name).ndim == 2 and config.layers >= 1


# ---- model files ---------------------------------------------------------------------------


def with_tokens(writer) -> None:
    words = [chr(ord("A") + k) for k in range(60)] + ["ab", "cd", "<s>", "</s>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types([1] * 62 + [3, 3])
    writer.add_token_merges(["a b", "c d"])
    writer.add_chat_template("{{ messages[0].content }}")


def gguf_header(path: Path) -> int:
    """Bytes before the tensors, all but."""
    return path.read_bytes().rindex(b"output_norm.weight") + 64


def test_gguf_files(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    source = RandomCheckpoint(SMALL)
    write(path, SMALL, tensors(source), more=with_tokens)
    found = open_model(str(path))
    assert found.tokenizer is not None and found.tokenizer.encode("ab")
    whole, end = path.read_bytes(), gguf_header(path)

    def case(rng: random.Random) -> None:
        path.write_bytes(damaged(whole, rng, end))
        only(tmp_path, path.name)
        model = open_model(str(path))
        read_all(model.config, model.checkpoint.tensor)

    survives(case)


def hf_config(c: ModelConfig) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"], "vocab_size": c.vocab, "hidden_size": c.hidden,
        "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "intermediate_size": c.intermediate, "rms_norm_eps": c.norm_eps, "bos_token_id": 0,
        "eos_token_id": [1], "rope_theta": c.rope_theta, "tie_word_embeddings": c.tied,
        "max_position_embeddings": c.max_position, "layer_types": ["full_attention"],
        "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    }


def hf_folder(folder: Path) -> None:
    source, arrays = RandomCheckpoint(SMALL), {}
    for name in ("embed", "final_norm"):
        arrays[_ENDS[name]] = source.tensor(name)
    for part in ("attn_norm", "wq", "wk", "wv", "wo", "mlp_norm", "w_gate", "w_up", "w_down"):
        arrays[_LAYER[part].format(0)] = source.tensor(f"layers.0.{part}")
    safetensors.numpy.save_file(arrays, folder / "a.safetensors")
    index = {"weight_map": dict.fromkeys(arrays, "a.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(hf_config(SMALL)))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))


def test_hugging_face_folders(tmp_path: Path) -> None:
    hf_folder(tmp_path)
    read_all(SMALL, HfCheckpoint(tmp_path).tensor)
    names = [p.name for p in sorted(tmp_path.iterdir())]
    whole = {name: (tmp_path / name).read_bytes() for name in names}

    def case(rng: random.Random) -> None:
        for name, data in whole.items():
            (tmp_path / name).write_bytes(data)
        name = rng.choice(names)
        path = tmp_path / name
        if name.endswith(".json") and rng.random() < 0.7:
            path.write_text(json.dumps(odd(json.loads(whole[name]), rng)))
        else:
            path.write_bytes(damaged(whole[name], rng, 2000))
        only(tmp_path, *names)
        found = HfCheckpoint(tmp_path)
        read_all(found.config, found.tensor)

    survives(case)


def test_tokenizers_of_folders(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    hf_folder(tmp_path)
    Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])).save(
        str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "a", "eos_token": {"content": "b"},
        "chat_template": [{"name": "default", "template": "{{ messages }}"}]}))
    names = ("tokenizer.json", "tokenizer_config.json")
    whole = {name: (tmp_path / name).read_bytes() for name in names}

    def case(rng: random.Random) -> None:
        for name, data in whole.items():
            (tmp_path / name).write_bytes(data)
        path = tmp_path / rng.choice(names)
        if rng.random() < 0.7:
            path.write_text(json.dumps(odd(json.loads(whole[path.name]), rng)))
        else:
            path.write_bytes(damaged(whole[path.name], rng))
        found = open_model(str(tmp_path)).tokenizer
        assert found is None or isinstance(found.encode("ab"), list)

    survives(case)


# ---- what is kept --------------------------------------------------------------------------


def test_entries_of_the_kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = os.urandom(5000)
    monkeypatch.setattr(
        cpp_build, "_compile", lambda target, text, out, extra: out.write_bytes(code)
    )
    env = replace(environment(), cache_dir=tmp_path)

    def built() -> cpp_build.BuildResult:
        return cpp_build.build_library("int x;", "x", env)

    first = built().path
    names = ("x.so", "x.so.json")
    assert not built().fresh

    def case(rng: random.Random) -> None:
        path = first.with_name(rng.choice(names))
        path.write_bytes(damaged(path.read_bytes(), rng))
        assert built().path.read_bytes() == code
        only(first.parent, "x.cpp", *names)

    survives(case)


def test_entries_of_packed_weights(tmp_path: Path) -> None:
    """Contents behind a header are not compared: see `weight_cache.py`."""
    env = environment({"ET_CACHE_DIR": str(tmp_path / "cache")})
    source = RandomCheckpoint(dataclasses.replace(PRESETS["tiny-qwen3"], layers=1, intermediate=64))
    file = tmp_path / "weights"
    file.write_bytes(b"one")

    def ask() -> dict[str, np.ndarray]:
        return packed_weights(source, [file], "cpu", np.dtype(ml_dtypes.bfloat16), env=env)

    wanted = {name: x.copy() for name, x in ask().items()}
    (folder,) = (env.cache_dir / "weights").iterdir()
    names = [p.name for p in sorted(folder.iterdir())]

    def case(rng: random.Random) -> None:
        path = folder / rng.choice(names)
        path.write_bytes(damaged(path.read_bytes(), rng, 100))
        if rng.random() < 0.3:
            (note,) = (env.cache_dir / "digests").iterdir()
            note.write_bytes(damaged(note.read_bytes(), rng, note.read_bytes().index(b"sha256")))
            file_digest(file, env.cache_dir)
        found = ask()
        assert found.keys() == wanted.keys()
        for name, x in found.items():
            assert x.dtype == wanted[name].dtype and x.shape == wanted[name].shape
            assert x.tobytes() == wanted[name].tobytes(), name
        only(folder.parent, folder.name)

    survives(case)


@et.task
def doubled(x, out):
    out[:] = x * 2.0


def test_artifacts(tmp_path: Path) -> None:
    n = et.dim("n", max=64)
    p = et.Program("double")
    x, s = p.input("x", (n,), et.f32), p.scratch("s", (n,), et.f32)
    y = p.output("y", (n,), et.f32)
    for a, b in ((x, s), (s, y)):
        p.call(doubled, grid=(n.tiles(8),), reads=lambda i, a=a: a[i * 8 : i * 8 + 8],
               writes=lambda i, b=b: b[i * 8 : i * 8 + 8])
    kernel = et.compile(p, target="cpu", workers=1)
    kernel.save(tmp_path / "whole")
    kernel.close()
    names = ("kernel.so", "kernel.json", "kernel.cpp")
    whole = {name: (tmp_path / "whole" / name).read_bytes() for name in names}

    def case(rng: random.Random) -> None:
        place = tmp_path / f"{rng.random()}"
        shutil.copytree(tmp_path / "whole", place)
        try:
            name = rng.choice(names)
            if name == "kernel.json" and rng.random() < 0.7:
                (place / name).write_text(json.dumps(odd(json.loads(whole[name]), rng)))
            else:
                (place / name).write_bytes(damaged(whole[name], rng))
            only(place, *names)
            et.load(place, workers=1).close()
        finally:
            shutil.rmtree(place)

    survives(case)
