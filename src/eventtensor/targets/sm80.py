"""Ampere and Ada (sm_80, sm_86, sm_89): tensor cores by warp, and no bulk copies.

Kernels compile for these GPUs, but none has run one. Their costs are those of the H200.
"""

from __future__ import annotations

from .h200 import COSTS
from .target import Capabilities, CudaTarget, Feature

FEATURES = frozenset({
    Feature.cp_async, Feature.mma_sync, Feature.ldmatrix, Feature.bf16_dot,
})
A100 = CudaTarget("a100", "sm_80", Capabilities(FEATURES, 108, 163 * 1024), COSTS)
RTX_3090 = CudaTarget("rtx3090", "sm_86", Capabilities(FEATURES, 82, 99 * 1024), COSTS)
RTX_4090 = CudaTarget("rtx4090", "sm_89", Capabilities(FEATURES, 128, 99 * 1024), COSTS)
