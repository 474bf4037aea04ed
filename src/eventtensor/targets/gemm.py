"""The ways to multiply packed or plain rows on a GPU, by name, with the features that each needs.

A plan says for each product which one it takes: the first that fits the product and the GPU. How a
way multiplies is in device/cuda.
"""

from __future__ import annotations

from dataclasses import dataclass

from .target import CudaTarget, Feature

_WARP = frozenset({Feature.mma_sync, Feature.ldmatrix, Feature.bf16_dot})


@dataclass(frozen=True, slots=True)
class GemmStrategy:
    """`is_wide`: for many columns, whose operand goes line by line. `is_streamed`: weights come
    through the pipeline, else each warp reads them in place."""

    name: str
    requires: frozenset[Feature]
    is_wide: bool
    is_streamed: bool


GEMM_WGMMA = GemmStrategy("gemm_wgmma", frozenset({Feature.wgmma, Feature.tma}), True, True)
GEMM_SKINNY = GemmStrategy("gemm_skinny", _WARP | {Feature.tma}, False, True)
GEMM_WIDE_IN_PLACE = GemmStrategy("gemm_wide_in_place", _WARP, True, False)
GEMM_SKINNY_IN_PLACE = GemmStrategy("gemm_skinny_in_place", _WARP, False, False)

# In the order in which they are tried.
STRATEGIES = (GEMM_WGMMA, GEMM_SKINNY, GEMM_WIDE_IN_PLACE, GEMM_SKINNY_IN_PLACE)


def select_gemm(target: CudaTarget, is_wide: bool, may_stream: bool) -> GemmStrategy | None:
    """The first way that fits; None if the GPU has no tensor cores that a way can use."""
    return next((s for s in STRATEGIES
                 if s.is_wide == is_wide and (may_stream or not s.is_streamed)
                 and target.supports(*s.requires)), None)


def required_features(name: str) -> frozenset[Feature]:
    """What the GPU must have for a way to multiply; nothing for the empty name."""
    return next((s.requires for s in STRATEGIES if s.name == name), frozenset())
