"""The choice of a token in NumPy, as `SamplingParams` says it: the kernel is held against it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eventtensor import SamplingParams
from eventtensor.llm.runner.batch_arrays import TokenChoice


def penalised(
    logits: np.ndarray, tokens: Sequence[int], prompt: int, p: SamplingParams
) -> np.ndarray:
    """Changes the logits in place."""
    if p.repetition_penalty != 1:
        seen = np.unique(tokens)
        old = logits[seen]
        logits[seen] = np.where(old > 0, old / p.repetition_penalty, old * p.repetition_penalty)
    if (p.presence_penalty or p.frequency_penalty) and len(tokens) > prompt:
        seen, times = np.unique(tokens[prompt:], return_counts=True)
        logits[seen] -= p.presence_penalty + p.frequency_penalty * times
    return logits


def draw(logits: np.ndarray, p: SamplingParams, uniform: float) -> int:
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


def changed(logits: np.ndarray, c: TokenChoice) -> np.ndarray:
    """As a choice says, in f64."""
    new = logits.astype(np.float64)
    if (how := c.change) is None:
        return new
    for token, bias in how.bias.items():
        new[token] += bias
    p = SamplingParams(repetition_penalty=how.repetition, presence_penalty=how.presence,
                       frequency_penalty=how.frequency)
    penalised(new, how.history.astype(np.int64), how.prompt, p)
    if how.allowed is not None:
        bits = np.unpackbits(how.allowed, count=len(new), bitorder="little")
        new[bits == 0] = -np.inf
    return new


def choose(logits: np.ndarray, c: TokenChoice) -> int:
    new = changed(logits, c)
    if c.temperature == 0:
        return int(new.argmax())
    p = SamplingParams(temperature=c.temperature, top_k=c.top_k, top_p=c.top_p, min_p=c.min_p)
    return draw(new, p, c.uniform)
