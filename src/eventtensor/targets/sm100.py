"""Data-center Blackwell (sm_100a): bulk copies and tensor memory, but no wgmma.

Kernels compile for the B200. None has run one. Its costs are those of the H200.
"""

from __future__ import annotations

from .h200 import COSTS
from .sm80 import FEATURES as AMPERE
from .target import Capabilities, CudaTarget, Feature

FEATURES = AMPERE | {Feature.tma, Feature.dependent_launch, Feature.clusters, Feature.tcgen05}
B200 = CudaTarget("b200", "sm_100a", Capabilities(FEATURES, 148, 227 * 1024), COSTS)
