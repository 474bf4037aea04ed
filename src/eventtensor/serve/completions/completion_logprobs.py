"""Log probabilities as completions have them: a list for each thing to know, over all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...engine.request import Chosen
from ..response_writer import Json
from ..token_texts import TokenTexts


@dataclass
class CompletionLogprobs:
    """`most`: of the likeliest tokens for each. `lengths`: of the text of each answer so far."""

    texts: TokenTexts
    most: int | None
    lengths: dict[int, int] = field(default_factory=dict)

    def entries(self, answer: int, tokens: Sequence[Chosen]) -> Json | None:
        """Of the next tokens of an answer. The first token of a prompt has nulls."""
        if self.most is None or not tokens:
            return None
        offsets, texts = list[int](), [self.texts.token_text(t.token) for t in tokens]
        for text in texts:
            offsets.append(self.lengths.get(answer, 0))
            self.lengths[answer] = offsets[-1] + len(text)
        return {"tokens": texts,
                "token_logprobs": [None if t.logprobs is None else t.logprobs.chosen
                                   for t in tokens],
                "top_logprobs": [self._top(t, self.most) for t in tokens],
                "text_offset": offsets}

    def _top(self, token: Chosen, most: int) -> dict[str, float] | None:
        """The token itself is always among them. Of tokens with one text the likeliest counts."""
        if token.logprobs is None:
            return None
        found = dict[str, float]()
        for t, x in (*token.logprobs.top[:most], (token.token, token.logprobs.chosen)):
            found.setdefault(self.texts.token_text(t), x)
        return found
