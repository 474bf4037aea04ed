"""The choice of a token on the host, for what the kernel's own does not offer: penalties, min_p,
grammars and log probabilities. `SamplingParams` says what it means; what a row gives depends on
it alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import StepFailed
from ..models.checkpoint import Array
from ..models.rows import chance
from .params import SamplingParams
from .request import Chosen, Logprobs, Request


def choose(request: Request, logits: Array) -> Chosen:
    """The token after the last known one of a request, by its row of logits."""
    if not np.isfinite(logits).all():
        raise StepFailed("the model gave logits that are not finite")
    p = request.params
    changed = penalised(logits.astype(np.float64), request.tokens, request.prompt, p)
    if request.grammar is not None:
        changed[~request.grammar.allowed()] = -np.inf
    if p.temperature == 0:
        token = int(changed.argmax())
    else:
        token = draw(changed, p, chance(request.seed, len(request.tokens) - 1))
    if request.grammar is not None:
        request.grammar.accept(token)
    return Chosen(token, None if p.logprobs is None else logprobs(logits, token, p.logprobs))


def penalised(logits: Array, tokens: Sequence[int], prompt: int, p: SamplingParams) -> Array:
    """Changes the logits in place."""
    if p.repetition_penalty != 1:
        seen = np.unique(tokens)
        old = logits[seen]
        logits[seen] = np.where(old > 0, old / p.repetition_penalty, old * p.repetition_penalty)
    if (p.presence_penalty or p.frequency_penalty) and len(tokens) > prompt:
        seen, times = np.unique(tokens[prompt:], return_counts=True)
        logits[seen] -= p.presence_penalty + p.frequency_penalty * times
    return logits


def draw(logits: Array, p: SamplingParams, uniform: float) -> int:
    """Among equals the lowest token counts as the likeliest."""
    mass = np.exp((logits - logits.max()) / p.temperature)
    mass[mass < p.min_p] = 0  # the largest is 1
    if p.top_k or p.top_p < 1:
        some = np.flatnonzero(mass)
        order = some[np.argsort(-mass[some], kind="stable")][: p.top_k or None]
        if p.top_p < 1:
            sums = np.cumsum(mass[order])
            order = order[: 1 + int(np.searchsorted(sums, p.top_p * sums[-1]))]
        kept = np.zeros_like(mass)
        kept[order] = mass[order]
        mass = kept
    sums = np.cumsum(mass)
    return int(np.searchsorted(sums, uniform * sums[-1], side="right"))


def logprobs(logits: Array, token: int, most: int) -> Logprobs:
    exact = logits.astype(np.float64)
    logp = exact - exact.max()
    logp -= np.log(np.exp(logp).sum())
    top = np.argpartition(-logp, min(most, len(logp) - 1))[:most]
    top = top[np.lexsort((top, -logp[top]))]
    return Logprobs(float(logp[token]), tuple((int(t), float(logp[t])) for t in top))
