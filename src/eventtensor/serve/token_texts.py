"""Texts of single tokens, for log probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..engine.request import Chosen, Logprobs
from ..models.text.tokenizer import BROKEN, Tokenizer

Json = dict[str, Any]


@dataclass(frozen=True)
class TokenTexts:
    """Without a tokenizer, tokens stand for their text."""

    tokenizer: Tokenizer | None
    _known: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def token_text(self, token: int) -> str:
        if self.tokenizer is None:
            return f"token_id:{token}"
        if (text := self._known.get(token)) is None:
            text = self._known[token] = self.tokenizer.decode([token], special=True)
        return text

    def logprobs(self, tokens: Sequence[Chosen]) -> list[Json]:
        """As chat completions have them."""
        return [self._entry(t.token, t.logprobs) for t in tokens if t.logprobs is not None]

    def _entry(self, token: int, p: Logprobs) -> Json:
        top = [self._likely(t, logp) for t, logp in p.top]
        return self._likely(token, p.chosen) | {"top_logprobs": top}

    def _likely(self, token: int, logp: float) -> Json:
        """Part of a character has no text, and its bytes are not told."""
        text = self.token_text(token)
        return {"token": text, "logprob": logp,
                "bytes": None if BROKEN in text else list(text.encode())}
