"""The tables of rotary position embedding (RoPE), in float32 as transformers computes them."""

from __future__ import annotations

from math import pi

import numpy as np

from ..array_types import Array
from .model_config import Llama3Rope, ModelConfig


def rope_tables(config: ModelConfig, positions: int) -> tuple[Array, Array]:
    """Cosines and sines, each (positions, head_dim // 2)."""
    at = np.arange(positions, dtype=np.float32)[:, None]
    # Transformers rounds the angle to float32; this rounding is the only error of the cosine.
    angles = (at * frequencies(config)).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def frequencies(config: ModelConfig) -> Array:
    """Radians per position, for each pair of channels."""
    dim = config.head_dim
    power = (np.arange(0, dim, 2) / dim).astype(np.float32).astype(np.float64)
    plain = np.float32(1) / np.power(config.rope_theta, power).astype(np.float32)
    if config.rope_scaling is None:
        return plain
    return scale_frequencies(plain, config.rope_scaling)


def scale_frequencies(plain: Array, s: Llama3Rope) -> Array:
    """Llama 3's scaling. Frequencies with fewer than `low_freq_factor` turns within the original
    context are divided by `factor`, those with more than `high_freq_factor` turns stay, and a blend
    joins both."""
    f32 = np.float32
    wavelength = f32(2 * pi) / plain
    turns = f32(s.original_max_position) / wavelength
    blend = (turns - f32(s.low_freq_factor)) / f32(s.high_freq_factor - s.low_freq_factor)
    mixed = (1 - blend) * plain / f32(s.factor) + blend * plain
    low = s.original_max_position / s.low_freq_factor
    high = s.original_max_position / s.high_freq_factor
    return np.where(
        wavelength > low, plain / f32(s.factor), np.where(wavelength < high, plain, mixed)
    ).astype(np.float32)
