"""GGUF files: the header against the package `gguf`, tensors of every type, the row order of
Hugging Face, and files that are refused."""

from __future__ import annotations

import dataclasses

import gguf
import ml_dtypes
import numpy as np
import pytest

from eventtensor.errors import (
    BadModelConfig,
    BadModelFile,
    MissingTensor,
    UnexpectedTensor,
    UnsupportedModel,
    UnsupportedTensorType,
    WrongTensorShape,
)
from eventtensor.llm.model.model_config import Llama3Rope
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.weights.checkpoint import shapes
from eventtensor.llm.weights.formats.gguf_checkpoint import GgufCheckpoint
from eventtensor.llm.weights.formats.gguf_file import read_gguf
from eventtensor.llm.weights.formats.random_checkpoint import RandomCheckpoint
from tests.support.gguf_files import tensors, write


@pytest.fixture
def tiny():
    """Without scaling: its parameters are not in the metadata."""
    config = dataclasses.replace(PRESETS["tiny-llama"], rope_scaling=None)
    return RandomCheckpoint(config)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
def test_a_file_gives_config_and_tensors_back(tmp_path, name):
    source = RandomCheckpoint(dataclasses.replace(PRESETS[name], rope_scaling=None))
    write(tmp_path / "m.gguf", source.config, tensors(source))
    found = GgufCheckpoint(tmp_path / "m.gguf")
    assert found.config == dataclasses.replace(source.config, eos=(1, 9))
    for wanted in (*shapes(source.config), "head"):
        np.testing.assert_array_equal(found.tensor(wanted), source.tensor(wanted), wanted)


def test_the_header_is_what_the_package_reads(tmp_path, tiny):
    path = tmp_path / "m.gguf"
    write(path, tiny.config, tensors(tiny), "Q8_0")
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    named = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata == named
    assert ours.tensors.keys() == {t.name for t in theirs.tensors}
    for t in theirs.tensors:
        assert ours.tensors[t.name].type == t.tensor_type.name
        wanted = gguf.quants.dequantize(t.data, t.tensor_type)
        np.testing.assert_array_equal(ours.tensors[t.name].values(), wanted)


@pytest.mark.parametrize(("kind", "error"), [
    ("F16", 2.0**-10), ("BF16", 0.0), ("Q8_0", 1 / 100), ("Q4_0", 1 / 6), ("Q4_1", 1 / 6),
])
def test_every_type_is_dequantised(tmp_path, tiny, kind, error):
    write(tmp_path / "m.gguf", tiny.config, tensors(tiny), kind)
    found = GgufCheckpoint(tmp_path / "m.gguf")
    for name in ("embed", "layers.1.wq", "layers.0.w_down"):
        wanted, array = tiny.tensor(name).astype(np.float32), found.tensor(name)
        assert array.dtype == (ml_dtypes.bfloat16 if kind == "BF16" else np.float32)
        scale = np.abs(wanted).max()
        assert np.abs(array.astype(np.float32) - wanted).max() <= error * scale
        if kind.startswith("Q"):  # it has been rounded
            assert not np.array_equal(array, wanted)


def test_blocks_of_q4_1_are_unpacked_by_the_book(tmp_path, tiny):
    """A block: scale and least value as f16, then 16 bytes, low halves first."""
    write(tmp_path / "m.gguf", tiny.config, tensors(tiny), "Q4_1")
    entry = read_gguf(tmp_path / "m.gguf").tensors["blk.0.ffn_up.weight"]
    block = bytes(entry.data[:20])
    scale, least = np.frombuffer(block[:4], np.float16).astype(np.float32)
    quants = [b & 15 for b in block[4:]] + [b >> 4 for b in block[4:]]
    wanted = np.array([q * scale + least for q in quants], np.float32)
    np.testing.assert_allclose(entry.values()[0, :32], wanted, rtol=1e-6)


def test_llama3_scaling_is_known_by_its_table(tmp_path):
    plain = dataclasses.replace(PRESETS["tiny-llama"], rope_scaling=None, rope_theta=500000.0)
    source, arrays = RandomCheckpoint(plain), tensors(RandomCheckpoint(plain))
    arrays["rope_freqs.weight"] = factors(plain, Llama3Rope(32.0, 1.0, 4.0, 8192))
    write(tmp_path / "m.gguf", source.config, arrays)
    found = GgufCheckpoint(tmp_path / "m.gguf").config
    assert found.rope_scaling == Llama3Rope(32.0, 1.0, 4.0, 8192)
    arrays["rope_freqs.weight"] = factors(plain, Llama3Rope(32.0, 1.0, 2.0, 8192))
    write(tmp_path / "o.gguf", source.config, arrays)
    with pytest.raises(UnsupportedModel, match=r"rope_freqs\.weight"):
        GgufCheckpoint(tmp_path / "o.gguf")


def factors(c, s: Llama3Rope) -> np.ndarray:
    """Channel by channel, as the converter of llama.cpp writes them."""
    out = []
    for k in range(c.head_dim // 2):
        wavelength = 2 * np.pi * c.rope_theta ** (2 * k / c.head_dim)
        if wavelength < s.original_max_position / s.high_freq_factor:
            out.append(1.0)
        elif wavelength > s.original_max_position / s.low_freq_factor:
            out.append(s.factor)
        else:
            part = s.original_max_position / wavelength - s.low_freq_factor
            smooth = part / (s.high_freq_factor - s.low_freq_factor)
            out.append(1 / ((1 - smooth) / s.factor + smooth))
    return np.array(out, np.float32)


@pytest.mark.parametrize(("changes", "error", "shown"), [
    ({"expert_count": 8}, UnsupportedModel, "llama.expert_count is 8"),
    ({"rope.scaling.type": "yarn"}, UnsupportedModel, "'yarn'; supported is 'none'"),
    ({"rope.dimension_count": 16}, UnsupportedModel, "rope.dimension_count is 16"),
    ({"block_count": None}, BadModelConfig, "block_count is None"),
    ({"block_count": 3}, MissingTensor, "blk.2."),
    ({"block_count": 1}, UnexpectedTensor, "blk.1."),
    ({"feed_forward_length": 128}, WrongTensorShape, "(256, 128); the config asks for (128, 128)"),
])
def test_metadata_that_does_not_fit_is_named(tmp_path, tiny, changes, error, shown):
    write(tmp_path / "m.gguf", tiny.config, tensors(tiny), **changes)
    with pytest.raises(error) as caught:
        GgufCheckpoint(tmp_path / "m.gguf")
    assert shown in str(caught.value)


def test_another_architecture_and_type_are_named_with_what_is_supported(tmp_path, tiny):
    odd = dataclasses.replace(tiny.config, family="gemma")
    write(tmp_path / "m.gguf", odd, {})
    with pytest.raises(UnsupportedModel, match="'gemma'; supported are llama, qwen3"):
        GgufCheckpoint(tmp_path / "m.gguf")
    write(tmp_path / "q.gguf", tiny.config, tensors(tiny), "Q5_0")
    with pytest.raises(UnsupportedTensorType, match=r"is Q5_0; supported are F32, .*Q4_1"):
        GgufCheckpoint(tmp_path / "q.gguf")


def test_a_file_that_is_cut_or_none_is_refused(tmp_path, tiny):
    path = tmp_path / "m.gguf"
    write(path, tiny.config, tensors(tiny))
    whole = path.read_bytes()
    for size in (0, 3, 10, 30, 500, len(whole) // 2, len(whole) - 4):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(BadModelFile, match=r"cut\.gguf"):
            read_gguf(tmp_path / "cut.gguf")
    (tmp_path / "cut.gguf").write_bytes(whole[:4] + b"\1\0\0\0" + whole[8:])
    with pytest.raises(BadModelFile, match="version 1"):
        read_gguf(tmp_path / "cut.gguf")
    with pytest.raises(BadModelFile, match="cannot be read"):
        read_gguf(tmp_path / "nowhere.gguf")
