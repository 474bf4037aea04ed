"""Ampere and Ada (sm_80, sm_86, sm_89): tensor cores by warp, and no bulk copies.

Kernels compile for these GPUs. None of them has run one, so no cost was measured here.
"""

from __future__ import annotations

from .target import Capabilities, CudaTarget, Feature

FEATURES = frozenset({
    Feature.cp_async, Feature.mma_sync, Feature.ldmatrix, Feature.bf16_dot,
})
A100 = CudaTarget("a100", "sm_80", Capabilities(FEATURES, 108, 163 * 1024))
RTX_3090 = CudaTarget("rtx3090", "sm_86", Capabilities(FEATURES, 82, 99 * 1024))
RTX_4090 = CudaTarget("rtx4090", "sm_89", Capabilities(FEATURES, 128, 99 * 1024))
