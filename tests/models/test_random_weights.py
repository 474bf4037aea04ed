"""Random weights: the sizes of published models, values that depend on name and seed alone, and the
same bits from the code that fills GPU memory."""

from __future__ import annotations

import ctypes
from contextlib import closing
from math import prod

import ml_dtypes
import numpy as np
import pytest

from eventtensor.config import environment
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.runner.runner_memory import DeviceMemory
from eventtensor.llm.weights import device_random_weights
from eventtensor.llm.weights.checkpoint import shapes
from eventtensor.llm.weights.formats import random_checkpoint
from eventtensor.llm.weights.formats.random_checkpoint import RandomCheckpoint
from eventtensor.llm.weights.weight_packing import pack_weights
from eventtensor.runtime.cpp_build import build_library
from eventtensor.runtime.cuda.cuda_build import build_cubin
from tests.support.fake_driver import FakeDriver, installed


@pytest.mark.parametrize(("name", "parameters"), [
    ("llama-3.2-1b", 1_235_814_400), ("llama-3.2-3b", 3_212_749_824),
    ("llama-3.1-8b", 8_030_261_248), ("smollm2-135m", 134_515_008),
    ("qwen3-0.6b", 596_049_920), ("qwen3-1.7b", 1_720_574_976), ("qwen3-4b", 4_022_468_096),
    ("qwen3-8b", 8_190_735_360), ("qwen3-14b", 14_768_307_200), ("qwen3-32b", 32_762_123_264),
    ("qwen3-30b-a3b", 30_532_122_624),
])
def test_a_known_model_has_the_published_number_of_parameters(name, parameters):
    assert sum(prod(s) for s in shapes(PRESETS[name]).values()) == parameters


def test_a_tensor_depends_on_seed_and_name_alone(monkeypatch):
    config = PRESETS["tiny-qwen3"]
    forward = {n: RandomCheckpoint(config, 5).tensor(n) for n in shapes(config)}
    again = RandomCheckpoint(config, 5)
    for name in reversed(shapes(config)):
        np.testing.assert_array_equal(again.tensor(name), forward[name])
    other = RandomCheckpoint(config, 6)
    assert not np.array_equal(other.tensor("embed"), forward["embed"])
    assert not np.array_equal(forward["layers.0.wq"], forward["layers.1.wq"])
    monkeypatch.setattr(random_checkpoint.os, "sched_getaffinity", lambda pid: {0})
    np.testing.assert_array_equal(again.tensor("embed"), forward["embed"])


def test_pieces_of_a_tensor_differ_and_fill_it(monkeypatch):
    monkeypatch.setattr(random_checkpoint, "_PIECE", 1000)
    found = RandomCheckpoint(PRESETS["tiny-llama"]).tensor("layers.0.w_gate").reshape(-1)
    assert found.size % 1000  # the last piece is a short one
    parts = [found[k : k + 1000] for k in range(0, found.size, 1000)]
    assert len({p.tobytes() for p in parts}) == len(parts)
    assert abs(parts[-1].astype(np.float32).std() - 128**-0.5) < 0.01


def test_sizes_of_activations_are_kept():
    found = RandomCheckpoint(PRESETS["tiny-llama"])
    for name, shape in shapes(found.config).items():
        values = found.tensor(name)
        assert values.dtype == ml_dtypes.bfloat16 and values.shape == shape
        centre, spread = (0, shape[1] ** -0.5) if len(shape) == 2 else (1, 0.1)
        values = values.astype(np.float32)
        assert abs(values.mean() - centre) < 5 * spread / values.size**0.5 + 0.005
        assert abs(values.std() / spread - 1) < 5 / values.size**0.5 + 0.01
    np.testing.assert_array_equal(found.tensor("head"), found.tensor("embed"))


# ---- on a device -----------------------------------------------------------------------------

ON_HOST = """
#include "random.h"
#define __global__
static struct { uint64_t x; } blockIdx, blockDim{1}, threadIdx, gridDim{1};
"""


ARGUMENTS = {
    "packed": (ctypes.c_void_p, ctypes.c_void_p, device_random_weights.Packing, ctypes.c_float,
               ctypes.c_uint64),
    "rows": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64),
}


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("name", ["tiny-qwen3-moe", "tiny-llama", "tiny-qwen3"])
def test_a_device_draws_the_bits_that_a_host_packs(name, dtype):
    """Its kernels run as functions of the host, with the arguments that the driver gets."""
    dtype, driver, checkpoint = np.dtype(dtype), FakeDriver(), RandomCheckpoint(PRESETS[name], 3)
    source = ON_HOST + device_random_weights.source_for(dtype)
    library = ctypes.CDLL(str(build_library(source, "drawing", environment()).path))

    def run(entry, places):
        given = (kind.from_address(places[k]) for k, kind in enumerate(ARGUMENTS[entry]))
        getattr(library, entry)(*given)

    driver.run_plain = run
    wanted = pack_weights(checkpoint, "cuda", dtype)
    with installed(lambda: driver), closing(DeviceMemory()) as memory:
        found = device_random_weights.random_weights_on_device(checkpoint, memory, dtype)
        assert found.keys() == wanted.keys()
        for array, own in wanted.items():
            got = found[array] if "norm" in array else memory.fetch(found[array])
            assert got.tobytes() == own.tobytes(), array
    assert "cuModuleUnload" in driver.log and not driver.memory


def test_the_kernels_that_draw_are_compiled_for_a_gpu():
    pytest.importorskip("cuda.bindings.nvrtc")
    source = device_random_weights.source_for(np.dtype(ml_dtypes.bfloat16))
    made = build_cubin(source, "random_weights", "sm_90a", environment())
    assert made.usage.registers < 64 and made.usage.spill_bytes == 0
