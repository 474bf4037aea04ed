"""Checkpoints of random bf16 weights. An element depends on the seed, the name of its tensor and
its own number alone (SplitMix64 by counter). So threads and a GPU (device/random.h) draw any part
of a tensor with the same bits."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

from ...array_types import Array, Shape
from ...model.model_config import ModelConfig
from ..checkpoint import check_name, shapes

_PIECE = 1 << 20  # elements of a thread: enough to be worth a start
_SLAB = 1 << 15  # elements at once, within a cache
_NORM_SPREAD = 0.1
_WIDTH = (2**32 - 1) ** 0.5 / 3**0.5 * 2  # standard deviation of the sum of four 16-bit numbers


@dataclass(frozen=True)
class RandomCheckpoint:
    """Matrices are nearly normal with variance 1 / inputs, so that activations keep their size.
    Norms are spread around 1."""

    config: ModelConfig
    seed: int = 0

    def tensor(self, name: str) -> Array:
        shape = shapes(self.config)[check_name(self.config, name)]
        out: Array = np.empty(prod(shape), ml_dtypes.bfloat16)
        centre, key, scale = 0.0 if len(shape) == 2 else 1.0, self.key(name), scale_of(shape)

        def fill(piece: int) -> None:
            for first in range(piece * _PIECE, min((piece + 1) * _PIECE, len(out)), _SLAB):
                part = out[first : min(first + _SLAB, (piece + 1) * _PIECE)]
                part[:] = _draw(key, first, len(part)) * np.float32(scale) + np.float32(centre)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(fill, range(-(-len(out) // _PIECE))))
        return out.reshape(shape)

    def key(self, name: str) -> int:
        """The random key of a tensor; a tied head is the embedding."""
        own = f"{self.seed} {check_name(self.config, name)}"
        return int.from_bytes(hashlib.sha256(own.encode()).digest()[:8], "little")


def scale_of(shape: Shape) -> float:
    """The float32 factor of the whole numbers of `_draw`."""
    return (shape[1] ** -0.5 if len(shape) == 2 else _NORM_SPREAD) / _WIDTH


def _draw(key: int, first: int, count: int) -> Array:
    """Whole numbers around 0, as float32."""
    z = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    parts = z.view(np.uint16).reshape(count, 4)
    total = parts[:, 0].astype(np.int32)
    for k in range(1, 4):
        total += parts[:, k]
    return (2 * total - 4 * 0xFFFF).astype(np.float32)
