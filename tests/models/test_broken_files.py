"""Model files whose headers hold nonsense are refused at the field, however long the file is."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from eventtensor.errors import BadModelConfig, BadModelFile, EventTensorError
from eventtensor.llm.model_files import read_json, read_text
from eventtensor.llm.text.tokenizer_files import from_folder
from eventtensor.llm.weights.formats.gguf_checkpoint import GgufCheckpoint
from eventtensor.llm.weights.formats.gguf_file import read_gguf
from eventtensor.llm.weights.formats.hf_checkpoint import _open, read_config
from eventtensor.llm.weights.model_source import open_model

_FAR = 1 << 34  # bytes of a file with a hole: nobody reads it to its end


def text(words: bytes) -> bytes:
    return struct.pack("<Q", len(words)) + words


def header(tensors: int = 1, keys: int = 1, pair: bytes = b"", info: bytes = b"") -> bytes:
    pair = pair or text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
    info = info or text(b"w") + struct.pack("<IQIQ", 1, 32, 0, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + pair + info


def file(tmp_path: Path, data: bytes, size: int = _FAR) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    os.truncate(path, size)
    return path


def test_the_header_of_these_tests_is_read(tmp_path: Path) -> None:
    found = read_gguf(file(tmp_path, header()))
    assert found.metadata == {"general.architecture": "llama"} and found.tensors["w"].shape == (32,)


HUGE = 2**63 + 5
BROKEN = {
    "tensors": header(tensors=HUGE), "keys": header(keys=HUGE),
    "axes": header(info=text(b"w") + struct.pack("<I", 2**31)),
    "five axes": header(info=text(b"w") + struct.pack("<I5QIQ", 5, 1, 1, 1, 1, 32, 0, 0)),
    "shape": header(info=text(b"w") + struct.pack("<IIQ", 0, 0, 0)),
    "shape with 0": header(info=text(b"w") + struct.pack("<I2QIQ", 2, 32, 0, 0, 0)),
    "bytes of a key": header(pair=struct.pack("<Q", HUGE)),
    "bytes of a tensor's name": header(info=struct.pack("<Q", 10**6)),
    "bytes of a text": header(pair=text(b"k") + struct.pack("<IQ", 8, HUGE)),
    "elements": header(pair=text(b"k") + struct.pack("<IIQ", 9, 4, HUGE)),
    "elements of texts": header(pair=text(b"k") + struct.pack("<IIQ", 9, 8, 2**40)),
    "unknown type": header(pair=text(b"k") + struct.pack("<I", 77)),
    "array of metadata type": header(pair=text(b"k") + struct.pack("<IIQ", 9, 9, 1)),
}


@pytest.mark.parametrize("field", BROKEN)
def test_a_broken_number_is_refused_where_it_stands(tmp_path: Path, field: str) -> None:
    with pytest.raises(BadModelFile) as caught:
        read_gguf(file(tmp_path, BROKEN[field]))
    message = caught.value.message
    assert field.partition(" of texts")[0].partition(" with")[0].replace("five ", "") in message
    (at,) = re.findall(r"at byte (\d+) of its header", message)
    assert int(at) < 200


def test_counts_are_held_against_the_length_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="ends inside its header"):
        read_gguf(file(tmp_path, header(tensors=100000), 4000))


def test_a_name_comes_once(tmp_path: Path) -> None:
    pair = text(b"k") + struct.pack("<II", 4, 1)
    with pytest.raises(BadModelFile, match="'k' twice"):
        read_gguf(file(tmp_path, header(keys=2, pair=pair + pair)))
    info = text(b"w") + struct.pack("<IQIQ", 1, 32, 0, 0)
    with pytest.raises(BadModelFile, match="'w' twice"):
        read_gguf(file(tmp_path, header(tensors=2, info=info + info)))


@pytest.mark.parametrize("step", [0, 3, 2**31])
def test_an_alignment_is_a_power_of_two(tmp_path: Path, step: int) -> None:
    pair = text(b"general.alignment") + struct.pack("<II", 4, step)
    with pytest.raises(BadModelFile, match="alignment"):
        read_gguf(file(tmp_path, header(pair=pair)))


# ---- config.json ---------------------------------------------------------------------------

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 256, "hidden_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 1024, "eos_token_id": 1,
}


def folder(tmp_path: Path, **changes: object) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes))
    return tmp_path


def test_the_config_of_these_tests_is_read(tmp_path: Path) -> None:
    assert read_config(folder(tmp_path)).layers == 2


@pytest.mark.parametrize("key, value", [
    ("rms_norm_eps", float("nan")), ("rms_norm_eps", float("inf")), ("rms_norm_eps", 10**400),
    ("rope_theta", float("nan")), ("rope_theta", float("-inf")), ("rope_theta", True),
    ("num_hidden_layers", 10**7), ("num_hidden_layers", 2**31), ("num_hidden_layers", 10**100),
    ("hidden_size", 2**40), ("vocab_size", 0), ("eos_token_id", 10**9), ("eos_token_id", -1),
    ("eos_token_id", [1, 256]), ("bos_token_id", 256), ("layer_types", 7),
    ("architectures", [{"a": 1}]), ("architectures", "LlamaForCausalLM"),
    ("rope_scaling", [1]), ("tie_word_embeddings", 1),
])
def test_nonsense_in_a_config_is_named(tmp_path: Path, key: str, value: object) -> None:
    named = key.removesuffix("s") if key == "architectures" else key
    with pytest.raises(BadModelConfig, match=named.replace("num_hidden_layers", "layers")):
        read_config(folder(tmp_path, **{key: value}))


def test_the_end_that_generation_config_names_is_a_token(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 300]}')
    with pytest.raises(BadModelConfig, match="eos_token_id is 300"):
        read_config(tmp_path)


def test_too_many_experts_are_refused_before_each_has_a_name(tmp_path: Path) -> None:
    moe = {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 2**30, "num_hidden_layers": 900,
           "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": True}
    with pytest.raises(BadModelConfig, match="MLPs"):
        read_config(folder(tmp_path, **moe))


@pytest.mark.parametrize("data, shown", [
    (b"[" * 100000, "nested too deeply"), (b"{", "not JSON"), (b"\xff\xfe{}", "not UTF-8"),
    (b"[]", "holds a list"), (b"", "not JSON"),
])
def test_what_is_no_table_is_refused(tmp_path: Path, data: bytes, shown: str) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(BadModelFile, match=shown):
        read_json(tmp_path / "config.json")


def test_a_config_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    folder(tmp_path)
    os.truncate(tmp_path / "config.json", _FAR)
    with pytest.raises(BadModelFile, match=f"has {_FAR} bytes"):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["../m.safetensors", "/etc/passwd", "m.bin", ""])
def test_an_index_names_files_beside_it(tmp_path: Path, name: str) -> None:
    folder(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(BadModelFile, match="no file beside it"):
        open_model(str(tmp_path))


@pytest.mark.parametrize("name", ["a" * 5000, "~nobody-of-this-name/m", "\udcff", "", "a\0b",
                                  "random:qwen3-8b?seed=" + "9" * 5000])
def test_a_name_of_no_model_is_an_error(name: str) -> None:
    with pytest.raises(EventTensorError):
        open_model(name)


def test_tokens_of_another_kind_are_refused(tmp_path: Path) -> None:
    pair = (text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
            + text(b"tokenizer.ggml.tokens") + struct.pack("<II", 4, 7))
    with pytest.raises(BadModelConfig):
        GgufCheckpoint(file(tmp_path, header(keys=2, pair=pair)))


def with_tokenizer(folder: Path, eos: str) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
    Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])).save(
        str(folder / "tokenizer.json"))


def test_a_text_ends_with_a_token_that_is_there(tmp_path: Path) -> None:
    with_tokenizer(tmp_path, "b")
    found = from_folder(tmp_path, ())
    assert found is not None and found.eos == (1,)
    with_tokenizer(tmp_path, "nowhere")
    with pytest.raises(BadModelFile, match="eos_token is 'nowhere'"):
        from_folder(tmp_path, ())


@pytest.mark.parametrize("read", [read_text, _open])
def test_a_pipe_is_no_file_of_a_model(tmp_path: Path, read) -> None:
    """To open it would take for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadModelFile, match="is no plain file"):
        read(tmp_path / "pipe")
