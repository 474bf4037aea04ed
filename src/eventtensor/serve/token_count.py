"""How many tokens answers have, and how many of them are reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .deltas import ArgumentsDelta, CallDelta, Delta, ReasoningDelta, TextDelta


@dataclass
class TokenCount:
    """Of all answers to one request. Tokens and deltas come in batches: the tokens of a batch are
    reasoning by its share of the batch's text. A batch without text is as the one before."""

    total: int = 0
    _reasoning: float = 0.0
    _share: dict[int, float] = field(default_factory=dict)  # of the last batch of each answer

    @property
    def reasoning(self) -> int:
        return round(self._reasoning)

    def add(self, answer: int, tokens: int, deltas: Iterable[Delta]) -> None:
        thought = said = 0
        for delta in deltas:
            match delta:
                case ReasoningDelta(text):
                    thought += len(text)
                case TextDelta(text) | ArgumentsDelta(_, text) | CallDelta(_, text):
                    said += len(text)
        if thought + said:
            self._share[answer] = thought / (thought + said)
        self.total += tokens
        self._reasoning += tokens * self._share.get(answer, 0.0)
