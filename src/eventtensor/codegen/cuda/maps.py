"""Tensor maps: matrices of which bulk copies bring boxes (device/cuda/boxes.cuh). The host
describes them when a kernel is bound; here is what it must know of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BYTES, ALIGN = 128, 64  # of a map, as the driver encodes it
BOX_BYTES = 128  # of a row in a box: what its swizzle has
COLUMNS = (16, 64)  # rows in a box: a line of few and of many columns of x
MOST = 12  # matrices: their maps are arguments of the kernel, which has 4 KB for all
ROW_ALIGN = 16  # bytes


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A tensor of 16-bit elements as a matrix with rows of `width` elements."""

    tensor: str
    width: int


@dataclass
class Maps:
    """Those of one kernel, in the order of their numbers."""

    found: list[MappedTensor] = field(default_factory=list)

    def number(self, tensor: str, width: int) -> int | None:
        """None if there is no room for another one."""
        wanted = MappedTensor(tensor, width)
        if wanted not in self.found:
            if len(self.found) == MOST:
                return None
            self.found.append(wanted)
        return self.found.index(wanted)
