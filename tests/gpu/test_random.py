"""Random weights made on the GPU are those that a host would draw and pack."""

from __future__ import annotations

from contextlib import closing

import ml_dtypes
import numpy as np
import pytest

from eventtensor import LLM, SamplingParams
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.runner.runner_memory import DeviceMemory
from eventtensor.llm.weights.device_random_weights import random_weights_on_device
from eventtensor.llm.weights.formats.random_checkpoint import RandomCheckpoint
from eventtensor.llm.weights.weight_packing import pack_weights


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("name", ["tiny-qwen3-moe", "tiny-llama"])
def test_a_gpu_draws_the_bits_that_a_host_packs(name: str, dtype: type) -> None:
    checkpoint = RandomCheckpoint(PRESETS[name], 3)
    with closing(DeviceMemory()) as memory:
        found = random_weights_on_device(checkpoint, memory, np.dtype(dtype))
        for array, own in pack_weights(checkpoint, "cuda", np.dtype(dtype)).items():
            got = found[array] if "norm" in array else memory.fetch(found[array])
            assert got.tobytes() == own.tobytes(), array


@pytest.mark.limit(240)
def test_a_random_model_says_the_same_on_a_gpu_and_on_threads() -> None:
    said = []
    params = SamplingParams(temperature=0, max_tokens=16)
    for target in ("cuda", "cpu"):
        with LLM("random:tiny-qwen3-moe", target=target, dtype="f32") as llm:
            said.append([t.token for t in llm.generate([[3, 1, 4, 1, 5]], params)[0].tokens])
    assert said[0] == said[1] and said[0]
