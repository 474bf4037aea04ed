"""Log probabilities of tokens, computed on the host from the logits of the model.

Penalties, biases and grammars change nothing here: these are the raw logits. Which requests ask for
log probabilities is decided in sampling_params.py."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, overload

import numpy as np

from ...errors import StepFailed
from ..array_types import Array

_CLASSES = 512  # more than a request may ask for, and few beside a vocabulary
_ROWS_PER_THREAD = 8  # with fewer, threads cost more than they save


@dataclass(frozen=True)
class Logprobs:
    """log p of a token (`chosen`), and the likeliest tokens with theirs (`top`). `rank` is the
    number of tokens that are at least as likely, the token itself included."""

    chosen: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 1


class ScoredToken(NamedTuple):
    """A token, with its log probabilities if the request asks for them."""

    token: int
    logprobs: Logprobs | None = None


def compute_logprobs(logits: Array, token: int, num_top: int) -> Logprobs:
    """The log probabilities of a token and of the `num_top` likeliest tokens, the lowest token
    first among equals. Equal logits have equal log p, because all subtract one number. The terms of
    the sum are f32 and the sum is f64, so the error is about 2^-22."""
    low, high = logits.min(), logits.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise StepFailed("the model gave logits that are not finite")
    norm = float(high) + float(np.log(np.exp(logits - high).sum(dtype=np.float64)))
    top = tuple((t, float(logits[t]) - norm) for t in _find_likeliest(logits, num_top))
    rank = int(np.count_nonzero(logits >= logits[token]))
    return Logprobs(float(logits[token]) - norm, top, rank)


def _find_likeliest(logits: Array, num_top: int) -> list[int]:
    """Sorts only tokens that reach a bound: the vocabulary is cut into classes, and the bound is
    the `num_top`-th largest of their maxima. Few other tokens reach it."""
    if num_top == 0:
        return []
    whole = len(logits) // _CLASSES * _CLASSES
    heads = logits[:whole].reshape(-1, _CLASSES).max(axis=0) if whole else logits
    count = min(num_top, len(heads))
    least = np.partition(heads, len(heads) - count)[len(heads) - count]
    found = np.flatnonzero(logits >= least)
    order = np.argsort(-logits[found], kind="stable")[:num_top]
    return [int(t) for t in found[order]]


class PromptLogprobs(Sequence[ScoredToken]):
    """The tokens of a prompt with their log probabilities, the first without any, because no token
    is before it. Steps add them in order, `num_scored` so far. Arrays hold them, because a prompt
    may be long."""

    def __init__(self, prompt: Sequence[int], num_top: int) -> None:
        self._tokens, self._num_top, self.num_scored = tuple(prompt), num_top, 0
        self._chosen, self._rank = np.zeros(0), np.zeros(0, np.int32)
        self._top, self._top_tokens = np.zeros((0, 0)), np.zeros((0, 0), np.int32)

    @property
    def is_complete(self) -> bool:
        return self.num_scored == len(self._tokens) - 1

    def add_logits(self, logits: Array) -> None:
        """Takes the rows of the next tokens. Threads share the work on many rows."""
        first, last = self.num_scored, self.num_scored + len(logits)
        self._make_arrays(min(self._num_top, logits.shape[1]))
        parts = [(k, min(k + _ROWS_PER_THREAD, last)) for k in range(first, last, _ROWS_PER_THREAD)]
        if len(parts) == 1:
            self._fill(logits, first, *parts[0])
        else:
            list(_threads().map(lambda part: self._fill(logits, first, *part), parts))
        self.num_scored = last

    def _make_arrays(self, num_top: int) -> None:
        if self.num_scored:
            return
        n = len(self._tokens) - 1
        self._chosen, self._rank = np.zeros(n), np.zeros(n, np.int32)
        self._top, self._top_tokens = np.zeros((n, num_top)), np.zeros((n, num_top), np.int32)

    def _fill(self, logits: Array, first: int, begin: int, end: int) -> None:
        for k in range(begin, end):
            found = compute_logprobs(logits[k - first], self._tokens[k + 1], self._num_top)
            self._chosen[k], self._rank[k] = found.chosen, found.rank
            for n, (token, logp) in enumerate(found.top):
                self._top_tokens[k, n], self._top[k, n] = token, logp

    # ---- as a sequence -----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, k: int) -> ScoredToken: ...
    @overload
    def __getitem__(self, k: slice) -> list[ScoredToken]: ...
    def __getitem__(self, k: int | slice) -> ScoredToken | list[ScoredToken]:
        if isinstance(k, slice):
            return [self._entry(i) for i in range(*k.indices(len(self)))]
        return self._entry(range(len(self))[k])

    def __iter__(self) -> Iterator[ScoredToken]:
        return map(self._entry, range(len(self)))

    def _entry(self, k: int) -> ScoredToken:
        if k == 0:
            return ScoredToken(self._tokens[0])
        top = zip(self._top_tokens[k - 1].tolist(), self._top[k - 1].tolist(), strict=True)
        return ScoredToken(self._tokens[k],
                      Logprobs(float(self._chosen[k - 1]), tuple(top), int(self._rank[k - 1])))


@cache
def _threads() -> ThreadPoolExecutor:
    """NumPy releases the interpreter while it computes."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), "logprobs")
