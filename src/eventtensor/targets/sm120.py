"""Consumer Blackwell (sm_120a): bulk copies, tensor cores by warp alone.

Kernels compile for the RTX 5090. None has run one. Its costs are those of the H200.
"""

from __future__ import annotations

from .h200 import COSTS
from .sm80 import FEATURES as AMPERE
from .target import Capabilities, CudaTarget, Feature

FEATURES = AMPERE | {Feature.tma, Feature.dependent_launch, Feature.clusters}
RTX_5090 = CudaTarget("rtx5090", "sm_120a", Capabilities(FEATURES, 170, 99 * 1024), COSTS)
