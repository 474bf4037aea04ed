"""Random weights: sizes of the published models, and values that a name and a seed alone decide."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import pytest

from eventtensor.models.checkpoint import shapes
from eventtensor.models.formats import random_weights
from eventtensor.models.formats.known import KNOWN
from eventtensor.models.formats.random_weights import RandomCheckpoint


@pytest.mark.parametrize(("name", "parameters"), [
    ("llama-3.2-1b", 1_235_814_400), ("llama-3.2-3b", 3_212_749_824),
    ("llama-3.1-8b", 8_030_261_248), ("smollm2-135m", 134_515_008),
    ("qwen3-0.6b", 596_049_920), ("qwen3-1.7b", 1_720_574_976), ("qwen3-4b", 4_022_468_096),
    ("qwen3-8b", 8_190_735_360), ("qwen3-14b", 14_768_307_200), ("qwen3-32b", 32_762_123_264),
    ("qwen3-30b-a3b", 30_532_122_624),
])
def test_a_known_model_has_the_published_number_of_parameters(name, parameters):
    assert sum(prod(s) for s in shapes(KNOWN[name]).values()) == parameters


def test_a_tensor_depends_on_seed_and_name_alone(monkeypatch):
    config = KNOWN["tiny-qwen3"]
    forward = {n: RandomCheckpoint(config, 5).tensor(n) for n in shapes(config)}
    again = RandomCheckpoint(config, 5)
    for name in reversed(shapes(config)):
        np.testing.assert_array_equal(again.tensor(name), forward[name])
    other = RandomCheckpoint(config, 6)
    assert not np.array_equal(other.tensor("embed"), forward["embed"])
    assert not np.array_equal(forward["layers.0.wq"], forward["layers.1.wq"])
    monkeypatch.setattr(random_weights.os, "sched_getaffinity", lambda pid: {0})
    np.testing.assert_array_equal(again.tensor("embed"), forward["embed"])


def test_pieces_of_a_tensor_differ_and_fill_it(monkeypatch):
    monkeypatch.setattr(random_weights, "_PIECE", 1000)
    found = RandomCheckpoint(KNOWN["tiny-llama"]).tensor("layers.0.w_gate").reshape(-1)
    assert found.size % 1000  # the last piece is a short one
    parts = [found[k : k + 1000] for k in range(0, found.size, 1000)]
    assert len({p.tobytes() for p in parts}) == len(parts)
    assert abs(parts[-1].astype(np.float32).std() - 128**-0.5) < 0.01


def test_sizes_of_activations_are_kept():
    found = RandomCheckpoint(KNOWN["tiny-llama"])
    for name, shape in shapes(found.config).items():
        values = found.tensor(name)
        assert values.dtype == ml_dtypes.bfloat16 and values.shape == shape
        centre, spread = (0, shape[1] ** -0.5) if len(shape) == 2 else (1, 0.1)
        values = values.astype(np.float32)
        assert abs(values.mean() - centre) < 5 * spread / values.size**0.5 + 0.005
        assert abs(values.std() / spread - 1) < 5 / values.size**0.5 + 0.01
    np.testing.assert_array_equal(found.tensor("head"), found.tensor("embed"))
