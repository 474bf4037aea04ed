"""Hopper (sm_90a): the H200, on which all costs were measured, and the H100 (SXM).

The two differ in their memory alone, which no plan asks for.
"""

from __future__ import annotations

from .sm80 import FEATURES as AMPERE
from .target import Capabilities, CudaTarget, Feature

FEATURES = AMPERE | {Feature.tma, Feature.clusters, Feature.wgmma}
H200 = CudaTarget("h200", "sm_90a", Capabilities(FEATURES, 132, 227 * 1024))
H100 = CudaTarget("h100", "sm_90a", H200.capabilities)
