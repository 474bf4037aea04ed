"""Draws random weights on the GPU, with the same bits as formats/random_checkpoint.py and
weight_packing.py on a host: 60 GB in a second without host memory."""

from __future__ import annotations

import ctypes
from contextlib import closing
from ctypes import c_float, c_uint32, c_uint64, c_void_p
from math import prod
from typing import Any

import numpy as np

from ...config import environment
from ...ir.products import BLOCK, PANEL
from ...runtime.cuda.raw_kernel import RawKernels
from ..array_types import Array
from ..model.model_config import ModelConfig
from ..model.packed_layout import matrices, packed_shapes
from ..model.tile_sizes import Layout
from ..runner.runner_memory import DeviceMemory
from .checkpoint import shapes
from .formats.random_checkpoint import RandomCheckpoint, scale_of
from .weight_packing import pack_weights, sources_of

MAX_SOURCES = 3  # of a matrix, as in device/random.h
_BLOCKS, _THREADS = 8, 256  # of a multiprocessor, of a block

SOURCE = """
#include "random.h"

#define ET_EACH(i, n) \\
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n; \\
       i += uint64_t(gridDim.x) * blockDim.x)

extern "C" __global__ void packed(STORED* out, const uint64_t* keys, et::random::Packing packing,
                                  float scale, uint64_t count) {
  ET_EACH(i, count) et::random::fill_packed(out, keys, packing, scale, i);
}

extern "C" __global__ void rows(STORED* out, uint64_t key, float scale, uint64_t count) {
  ET_EACH(i, count) et::random::fill_rows(out, key, scale, i);
}
"""


class Packing(ctypes.Structure):
    """The struct of device/random.h."""

    _fields_ = (("panels", c_uint32), ("bundle", c_uint32), ("spans", c_uint32),
                ("blocks", c_uint32), ("sources", c_uint32),
                ("first", c_uint32 * (MAX_SOURCES + 1)))


def packing_of(c: ModelConfig, name: str, layout: Layout = "cuda") -> Packing:
    """The packing of one matrix of the array."""
    matrix, known = matrices(c)[name], shapes(c)
    pieces = sources_of(c, name)[0]
    rows = [known["embed" if n == "head" and c.tied else n][0] for n in pieces]
    first = np.cumsum([0, *(r // PANEL // matrix.rounds for r in rows)])
    *_, spans, bundle, _, blocks, _, _ = packed_shapes(c, layout)[name]
    return Packing(matrix.rows // PANEL, bundle, spans, blocks, len(rows),
                   (c_uint32 * (MAX_SOURCES + 1))(*map(int, first)))


def keys_of(checkpoint: RandomCheckpoint, name: str) -> Array:
    """The random keys of all sources of all matrices of the array, in order."""
    names = (n for piece in sources_of(checkpoint.config, name) for n in piece)
    return np.array([checkpoint.key(n) for n in names], np.uint64)


def source_for(dtype: np.dtype[Any]) -> str:
    """The CUDA source for weights of a dtype."""
    return SOURCE.replace("STORED", "et::bf16" if dtype.itemsize == 2 else "float")


def random_weights_on_device(
    checkpoint: RandomCheckpoint, memory: DeviceMemory, dtype: np.dtype[Any],
    layout: Layout = "cuda",
) -> dict[str, Array]:
    """The result of `pack_weights` for a GPU: matrices and the embedding in `memory`, norms on the
    host."""
    c = checkpoint.config
    drawn = ("embed", *matrices(c))
    out = pack_weights(checkpoint, layout, dtype, without=drawn)
    kernels = RawKernels(memory.device, source_for(dtype), "random_weights", environment())
    with closing(kernels):
        for name in drawn:
            shape = packed_shapes(c, layout)[name]
            out[name] = array = memory.empty(shape, dtype)
            entry, columns, *own = _packed(checkpoint, name, memory, layout) if name != "embed" \
                else ("rows", c.hidden, c_uint64(checkpoint.key(name)))
            kernels.launch(
                entry, _BLOCKS * memory.device.target.multiprocessors, _THREADS,
                c_void_p(array.ctypes.data), *own, c_float(scale_of((1, columns))),
                c_uint64(prod(shape) // BLOCK))
    return out


def _packed(
    checkpoint: RandomCheckpoint, name: str, memory: DeviceMemory, layout: Layout
) -> tuple[Any, ...]:
    """The entry point, the columns of a matrix, and the arguments between array and scale."""
    keys = memory.place_weights({name: keys_of(checkpoint, name)}, None)[name]
    return ("packed", matrices(checkpoint.config)[name].columns, c_void_p(keys.ctypes.data),
            packing_of(checkpoint.config, name, layout))
