"""Log probabilities, by the logits as the model gave them, and bits of tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..errors import StepFailed
from ..models.checkpoint import Array
from .request import Logprobs


def logprobs(logits: Array, token: int, most: int) -> Logprobs:
    """Of the token that was chosen by a row of logits, and of the likeliest ones."""
    exact = logits.astype(np.float64)
    if not np.isfinite(exact).all():
        raise StepFailed("the model gave logits that are not finite")
    logp = exact - exact.max()
    logp -= np.log(np.exp(logp).sum())
    top = np.argpartition(-logp, min(most, len(logp) - 1))[:most]
    top = top[np.lexsort((top, -logp[top]))]
    return Logprobs(float(logp[token]), tuple((int(t), float(logp[t])) for t in top))


def without(tokens: Iterable[int], vocab: int) -> Array:
    """A bit for each other token, the lowest of a byte first."""
    bits = np.ones(vocab, bool)
    bits[[t for t in tokens if t < vocab]] = False
    return np.packbits(bits, bitorder="little")
