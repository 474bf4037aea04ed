"""RoPE tables against the published rule in float64, and against transformers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from eventtensor.llm.model.model_config import Llama3Rope, from_hf
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.rope import frequencies, rope_tables


def by_the_rule(config) -> np.ndarray:
    """Channel by channel, in float64."""
    out = []
    for k in range(config.head_dim // 2):
        f = config.rope_theta ** (-2 * k / config.head_dim)
        s = config.rope_scaling
        if s is not None:
            turns = s.original_max_position * f / (2 * np.pi)
            if turns < s.low_freq_factor:
                f /= s.factor
            elif turns <= s.high_freq_factor:
                keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
                f = (1 - keep) * f / s.factor + keep * f
        out.append(f)
    return np.array(out)


@pytest.mark.parametrize("name", list(PRESETS))
def test_frequencies_follow_the_rule(name):
    np.testing.assert_allclose(frequencies(PRESETS[name]), by_the_rule(PRESETS[name]), rtol=5e-7)


def test_all_three_ranges_of_the_scaling_are_there():
    ratio = frequencies(dataclasses.replace(PRESETS["llama-3.2-1b"], rope_scaling=None)) \
        / frequencies(PRESETS["llama-3.2-1b"])
    assert ratio[0] == 1 and ratio[-1] == 32 and any(2 < r < 31 for r in ratio)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tables_are_those_of_transformers(save, family):
    torch = pytest.importorskip("torch")
    model = save(family).model
    config = from_hf(model.config.to_dict() | {"architectures": [type(model).__name__]})
    assert (config.rope_scaling is not None) is (family == "llama")
    cos, sin = model.model.rotary_emb(torch.zeros(1), torch.arange(512)[None])
    half = config.head_dim // 2
    for ours, theirs in zip(rope_tables(config, 512), (cos, sin), strict=True):
        assert ours.shape == (512, half) and ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs[0, :, :half].numpy(), atol=5e-5)
        np.testing.assert_allclose(ours[:32], theirs[0, :32, :half].numpy(), atol=4e-6)


def test_an_angle_is_rounded_like_a_float32_product():
    config = dataclasses.replace(PRESETS["tiny-llama"], rope_scaling=Llama3Rope(2.0, 1.0, 4.0, 16))
    cos, sin = rope_tables(config, 300)
    angle = np.float32(299) * frequencies(config)
    np.testing.assert_array_equal(cos[299], np.cos(angle.astype(np.float64)).astype(np.float32))
    np.testing.assert_allclose(cos**2 + sin**2, 1, rtol=1e-6)
