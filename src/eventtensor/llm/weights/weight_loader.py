"""Loads the packed weights of a model for a target: from the cache of weight_cache.py, or random
weights drawn on the GPU itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..array_types import Progress
from ..model.tile_sizes import Layout
from ..runner.runner_memory import DeviceMemory
from .device_random_weights import random_weights_on_device
from .formats.random_checkpoint import RandomCheckpoint
from .model_source import Model
from .weight_cache import packed_weights


@dataclass(frozen=True)
class ModelWeights:
    """Packed arrays. `memory` owns those on a device."""

    arrays: Mapping[str, Any]
    memory: DeviceMemory | None = None

    def close(self) -> None:
        if self.memory is not None:
            self.memory.close()


def load_weights(
    model: Model, layout: Layout, dtype: np.dtype[Any], progress: Progress | None = None,
    device: int = 0,
) -> ModelWeights:
    if layout != "cpu" and isinstance(model.checkpoint, RandomCheckpoint):
        memory = DeviceMemory(device)
        arrays = random_weights_on_device(model.checkpoint, memory, dtype, layout)
        return ModelWeights(arrays, memory)
    return ModelWeights(packed_weights(model.checkpoint, model.files, layout, dtype, progress))
