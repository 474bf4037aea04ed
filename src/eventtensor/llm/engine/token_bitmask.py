"""Sets of tokens as bits, in the form that the kernel takes: the lowest bit of a byte first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..array_types import Array


def bitmask_without(tokens: Iterable[int], vocab: int) -> Array:
    """A bit for each token of the vocabulary but these."""
    bits = np.ones(vocab, bool)
    bits[[t for t in tokens if t < vocab]] = False
    return np.packbits(bits, bitorder="little")
