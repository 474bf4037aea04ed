"""Shapes of published models by name, for random weights of real size. Tiny presets are for tests;
their scaling and head sizes make mistakes visible."""

from __future__ import annotations

from .model_config import Experts, Llama3Rope, ModelConfig


def _llama3(
    hidden: int, layers: int, heads: int, dim: int, wide: int, tied: bool, factor: float
) -> ModelConfig:
    scaling = Llama3Rope(factor, 1.0, 4.0, 8192)
    return ModelConfig(
        "llama", 128256, hidden, layers, heads, 8, dim, wide, 1e-5, 500000.0, scaling, tied, False,
        131072, (128000,), (128001,),
    )  # fmt: skip


def _qwen3(hidden: int, layers: int, heads: int, wide: int, tied: bool) -> ModelConfig:
    return ModelConfig(
        "qwen3", 151936, hidden, layers, heads, 8, 128, wide, 1e-6, 1e6, None, tied, True, 40960,
        (151643,), (151645,),
    )  # fmt: skip


PRESETS = {
    "llama-3.2-1b": _llama3(2048, 16, 32, 64, 8192, True, 32.0),
    "llama-3.2-3b": _llama3(3072, 28, 24, 128, 8192, True, 32.0),
    "llama-3.1-8b": _llama3(4096, 32, 32, 128, 14336, False, 8.0),
    "smollm2-135m": ModelConfig(
        "llama", 49152, 576, 30, 9, 3, 64, 1536, 1e-5, 100000.0, None, True, False, 8192, (1,), (2,)
    ),
    "qwen3-0.6b": _qwen3(1024, 28, 16, 3072, True),
    "qwen3-1.7b": _qwen3(2048, 28, 16, 6144, True),
    "qwen3-4b": _qwen3(2560, 36, 32, 9728, True),
    "qwen3-8b": _qwen3(4096, 36, 32, 12288, False),
    "qwen3-14b": _qwen3(5120, 40, 40, 17408, False),
    "qwen3-32b": _qwen3(5120, 64, 64, 25600, False),
    "qwen3-30b-a3b": ModelConfig(
        "qwen3_moe", 151936, 2048, 48, 32, 4, 128, 768, 1e-6, 1e6, None, False, True, 40960,
        (151643,), (151645,), Experts(128, 8, True),
    ),
    "tiny-llama": ModelConfig(
        "llama", 256, 128, 2, 4, 2, 32, 256, 1e-5, 10000.0, Llama3Rope(4.0, 1.0, 4.0, 64), True,
        False, 1024, (0,), (1,),
    ),
    "tiny-qwen3": ModelConfig(
        "qwen3", 256, 128, 2, 4, 2, 64, 256, 1e-6, 1e6, None, False, True, 1024, (0,), (1,)
    ),
    "tiny-qwen3-moe": ModelConfig(
        "qwen3_moe", 256, 128, 2, 4, 2, 64, 32, 1e-6, 1e6, None, False, True, 1024, (0,), (1,),
        Experts(16, 4, True),
    ),
}  # fmt: skip
