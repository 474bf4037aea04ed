"""Which tokens may be chosen, as bits for the kernel."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..models.checkpoint import Array


def without(tokens: Iterable[int], vocab: int) -> Array:
    """A bit for each other token, the lowest of a byte first."""
    bits = np.ones(vocab, bool)
    bits[[t for t in tokens if t < vocab]] = False
    return np.packbits(bits, bitorder="little")
