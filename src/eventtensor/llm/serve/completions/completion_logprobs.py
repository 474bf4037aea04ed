"""Log probabilities in the format of completions: one list per quantity, over all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...engine.request import ScoredToken
from ..response_writer import Json
from ..token_texts import TokenTexts


@dataclass
class CompletionLogprobs:
    """`max_top` is the number of likeliest tokens per position. `lengths` are the text lengths of
    the answers so far."""

    texts: TokenTexts
    max_top: int | None
    lengths: dict[int, int] = field(default_factory=dict)

    def entries(self, answer: int, tokens: Sequence[ScoredToken]) -> Json | None:
        """Entries of the next tokens of an answer. The first token of a prompt has nulls."""
        if self.max_top is None or not tokens:
            return None
        offsets, texts = list[int](), [self.texts.token_text(t.token) for t in tokens]
        for text in texts:
            offsets.append(self.lengths.get(answer, 0))
            self.lengths[answer] = offsets[-1] + len(text)
        return {"tokens": texts,
                "token_logprobs": [None if t.logprobs is None else t.logprobs.chosen
                                   for t in tokens],
                "top_logprobs": [self._top(t, self.max_top) for t in tokens],
                "text_offset": offsets}

    def _top(self, token: ScoredToken, max_top: int) -> dict[str, float] | None:
        """Always includes the token itself. Of tokens with equal text, the likeliest counts."""
        if token.logprobs is None:
            return None
        found = dict[str, float]()
        for t, x in (*token.logprobs.top[:max_top], (token.token, token.logprobs.chosen)):
            found.setdefault(self.texts.token_text(t), x)
        return found
