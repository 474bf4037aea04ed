"""Checkpoints of random bf16 weights. A tensor depends on the seed and its own name alone, and is
drawn in pieces by several threads: its values depend on neither their number nor any order."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

from ..checkpoint import Array, check_name, shapes
from ..config import ModelConfig

_PIECE = 1 << 20  # elements: enough that a thread is not started for nothing
_NORM_SPREAD = 0.1


@dataclass(frozen=True)
class RandomCheckpoint:
    """Matrices are normal with variance 1 / inputs, so that activations keep their size; norms are
    spread around 1."""

    config: ModelConfig
    seed: int = 0

    def tensor(self, name: str) -> Array:
        name = check_name(self.config, name)
        shape = shapes(self.config)[name]
        out: Array = np.empty(prod(shape), ml_dtypes.bfloat16)
        scale, centre = (shape[1] ** -0.5, 0.0) if len(shape) == 2 else (_NORM_SPREAD, 1.0)

        def fill(piece: int) -> None:
            part = out[piece * _PIECE : (piece + 1) * _PIECE]
            drawn = self._generator(name, piece).standard_normal(len(part), np.float32)
            part[:] = drawn * np.float32(scale) + np.float32(centre)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(fill, range(-(-len(out) // _PIECE))))
        return out.reshape(shape)

    def _generator(self, name: str, piece: int) -> np.random.Generator:
        key = hashlib.sha256(f"{self.seed} {name} {piece}".encode()).digest()
        return np.random.Generator(np.random.SFC64(int.from_bytes(key, "little")))
