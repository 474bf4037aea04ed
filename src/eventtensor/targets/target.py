"""The types of a target: its features, its sizes, and the GPU as one value.

All values are frozen. The numbers themselves are in the file of each machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .cost_model import CostModel


class Feature(StrEnum):
    """An instruction family that a strategy may require."""

    cp_async = "cp_async"  # copies of 4 to 16 bytes into shared memory that a thread starts
    mma_sync = "mma_sync"  # tensor cores by warp, from registers
    ldmatrix = "ldmatrix"
    bf16_dot = "bf16_dot"  # bf16 operands of tensor cores
    tma = "tma"  # bulk copies into shared memory, tensor maps, and transaction barriers
    dependent_launch = "dependent_launch"  # a launch begins while the one before ends
    clusters = "clusters"  # distributed shared memory
    wgmma = "wgmma"  # tensor cores by warp group, from shared memory: Hopper alone
    tcgen05 = "tcgen05"  # tensor cores with tensor memory: data-center Blackwell alone


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a GPU can do. `shared_bytes` is the most shared memory of one block, `registers` those
    of a multiprocessor (32 bits each)."""

    features: frozenset[Feature]
    multiprocessors: int
    shared_bytes: int
    registers: int = 65536

    def supports(self, *features: Feature) -> bool:
        """True if the GPU has all of these features."""
        return self.features.issuperset(features)


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """An NVIDIA GPU. `architecture` is the name that NVRTC takes."""

    name: str
    architecture: str
    capabilities: Capabilities
    costs: CostModel

    @property
    def multiprocessors(self) -> int:
        return self.capabilities.multiprocessors

    @property
    def shared_bytes(self) -> int:
        """The most shared memory that one block may have."""
        return self.capabilities.shared_bytes

    def supports(self, *features: Feature) -> bool:
        """True if the GPU has all of these features."""
        return self.capabilities.supports(*features)
