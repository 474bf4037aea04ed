"""Log probabilities of tokens, by the logits as the model gave them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, overload

import numpy as np

from ..errors import StepFailed
from ..models.checkpoint import Array

_CLASSES = 512  # more than a request may ask for, and few beside a vocabulary
_ROWS = 8  # that one thread takes: below that, threads cost more than they save


@dataclass(frozen=True)
class Logprobs:
    """log p of the token, and the likeliest tokens with theirs. `rank`: how many tokens are as
    likely as it is, or likelier; it counts itself."""

    chosen: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 1


class Chosen(NamedTuple):
    token: int
    logprobs: Logprobs | None = None


def logprobs(logits: Array, token: int, most: int) -> Logprobs:
    """Of a token after a row of logits, and of the `most` likeliest ones: the lowest first among
    equals. All are the logit less one number, so equal logits have equal log p. Terms of the sum
    are f32 and their sum is f64: together they are right to about 2^-22."""
    low, high = logits.min(), logits.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise StepFailed("the model gave logits that are not finite")
    norm = float(high) + float(np.log(np.exp(logits - high).sum(dtype=np.float64)))
    top = tuple((t, float(logits[t]) - norm) for t in _likeliest(logits, most))
    rank = int(np.count_nonzero(logits >= logits[token]))
    return Logprobs(float(logits[token]) - norm, top, rank)


def _likeliest(logits: Array, most: int) -> list[int]:
    """Tokens are dealt to classes. What is among the `most` likeliest is no less likely than the
    last of the `most` likeliest classes; few others are."""
    if most == 0:
        return []
    whole = len(logits) // _CLASSES * _CLASSES
    heads = logits[:whole].reshape(-1, _CLASSES).max(axis=0) if whole else logits
    count = min(most, len(heads))
    least = np.partition(heads, len(heads) - count)[len(heads) - count]
    found = np.flatnonzero(logits >= least)
    order = np.argsort(-logits[found], kind="stable")[:most]
    return [int(t) for t in found[order]]


class PromptLogprobs(Sequence[Chosen]):
    """Of the tokens of a prompt. The first has none, as nothing is before it. They come in the
    order of the tokens: `scored` are there. Arrays hold them, as there may be many."""

    def __init__(self, prompt: Sequence[int], most: int) -> None:
        self._tokens, self._most, self.scored = tuple(prompt), most, 0
        self._chosen, self._rank = np.zeros(0), np.zeros(0, np.int32)
        self._top, self._top_tokens = np.zeros((0, 0)), np.zeros((0, 0), np.int32)

    @property
    def whole(self) -> bool:
        return self.scored == len(self._tokens) - 1

    def add(self, logits: Array) -> None:
        """Rows of the next tokens. Many rows are shared by threads."""
        first, last = self.scored, self.scored + len(logits)
        self._make_room(min(self._most, logits.shape[1]))
        parts = [(k, min(k + _ROWS, last)) for k in range(first, last, _ROWS)]
        if len(parts) == 1:
            self._fill(logits, first, *parts[0])
        else:
            list(_threads().map(lambda part: self._fill(logits, first, *part), parts))
        self.scored = last

    def _make_room(self, most: int) -> None:
        if self.scored:
            return
        n = len(self._tokens) - 1
        self._chosen, self._rank = np.zeros(n), np.zeros(n, np.int32)
        self._top, self._top_tokens = np.zeros((n, most)), np.zeros((n, most), np.int32)

    def _fill(self, logits: Array, first: int, begin: int, end: int) -> None:
        for k in range(begin, end):
            found = logprobs(logits[k - first], self._tokens[k + 1], self._most)
            self._chosen[k], self._rank[k] = found.chosen, found.rank
            for n, (token, logp) in enumerate(found.top):
                self._top_tokens[k, n], self._top[k, n] = token, logp

    # ---- as a sequence -----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, k: int) -> Chosen: ...
    @overload
    def __getitem__(self, k: slice) -> list[Chosen]: ...
    def __getitem__(self, k: int | slice) -> Chosen | list[Chosen]:
        if isinstance(k, slice):
            return [self._entry(i) for i in range(*k.indices(len(self)))]
        return self._entry(range(len(self))[k])

    def __iter__(self) -> Iterator[Chosen]:
        return map(self._entry, range(len(self)))

    def _entry(self, k: int) -> Chosen:
        if k == 0:
            return Chosen(self._tokens[0])
        top = zip(self._top_tokens[k - 1].tolist(), self._top[k - 1].tolist(), strict=True)
        return Chosen(self._tokens[k],
                      Logprobs(float(self._chosen[k - 1]), tuple(top), int(self._rank[k - 1])))


@cache
def _threads() -> ThreadPoolExecutor:
    """NumPy gives the interpreter free while it computes."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), "logprobs")
