"""Counts the tokens of answers, and estimates how many of them are reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .deltas import ArgumentsDelta, CallDelta, Delta, ReasoningDelta, TextDelta


@dataclass
class TokenCount:
    """Counts for all answers to one request. The tokens of a batch count as reasoning by the share
    of reasoning in its text. A batch without text has the share of the batch before."""

    total: int = 0
    _reasoning: float = 0.0
    _share: dict[int, float] = field(default_factory=dict)  # of the last batch of each answer

    @property
    def reasoning(self) -> int:
        return round(self._reasoning)

    def add(self, answer: int, tokens: int, deltas: Iterable[Delta]) -> None:
        reasoning_chars = other_chars = 0
        for delta in deltas:
            match delta:
                case ReasoningDelta(text):
                    reasoning_chars += len(text)
                case TextDelta(text) | ArgumentsDelta(_, text) | CallDelta(_, text):
                    other_chars += len(text)
        if reasoning_chars + other_chars:
            self._share[answer] = reasoning_chars / (reasoning_chars + other_chars)
        self.total += tokens
        self._reasoning += tokens * self._share.get(answer, 0.0)
