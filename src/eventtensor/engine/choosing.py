"""Log probabilities, by the logits as the model gave them."""

from __future__ import annotations

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
