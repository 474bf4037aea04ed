"""Tensor maps: matrices of which bulk copies bring boxes (tma_activation.cuh), and packed weights
of which they bring stages whose pieces lie apart (producer.cuh). The host describes them when a
kernel is bound; here is what it must know of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BYTES, ALIGN = 128, 64  # of a map, as the driver encodes it
BOX_BYTES = 128  # of a row in a box: what its swizzle has
COLUMNS = (16, 64)  # rows in a box: an activation tile of few and of many columns
# Matrices of x, and maps in all: they are arguments of the kernel, which has 4 KB for everything.
MOST, MOST_MAPS = 12, 26
ROW_ALIGN = 16  # bytes
RUN = 2048  # bytes of weights that lie together in all boxes


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A tensor of 16-bit elements as a matrix with rows of `width` elements."""

    tensor: str
    width: int


@dataclass(frozen=True, slots=True)
class PagedTensor:
    """Packed weights as panels of `width` bytes; a page is `piece` bytes of each of `count`
    panels one after the other."""

    tensor: str
    width: int
    piece: int
    count: int


@dataclass
class Maps:
    """Those of one kernel, in the order of their numbers, and whether there is x without one."""

    found: list[MappedTensor] = field(default_factory=list)
    pages: list[PagedTensor] = field(default_factory=list)
    lacking: bool = False

    @property
    def count(self) -> int:
        """Of maps."""
        return len(COLUMNS) * len(self.found) + len(self.pages)

    def number(self, tensor: str, width: int) -> int | None:
        """None if there is no room for another one."""
        wanted = MappedTensor(tensor, width)
        if wanted not in self.found:
            if len(self.found) == MOST:
                return None
            self.found.append(wanted)
        return self.found.index(wanted)

    def page(self, wanted: PagedTensor) -> int | None:
        """The same for weights, which take what room x has left."""
        if wanted not in self.pages:
            if self.count == MOST_MAPS:
                return None
            self.pages.append(wanted)
        return self.pages.index(wanted)
