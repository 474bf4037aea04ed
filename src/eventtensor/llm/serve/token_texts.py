"""The texts of single tokens, for log probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..engine.request import Logprobs, ScoredToken
from ..text.tokenizer import BROKEN, Tokenizer

Json = dict[str, Any]


@dataclass(frozen=True)
class TokenTexts:
    """Caches texts. Without a tokenizer, a text shows the token's id."""

    tokenizer: Tokenizer | None
    _cache: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def token_text(self, token: int) -> str:
        if self.tokenizer is None:
            return f"token_id:{token}"
        if (text := self._cache.get(token)) is None:
            text = self._cache[token] = self.tokenizer.decode([token], special=True)
        return text

    def logprobs(self, tokens: Sequence[ScoredToken]) -> list[Json]:
        """The entries of chat completions."""
        return [self._entry(t.token, t.logprobs) for t in tokens if t.logprobs is not None]

    def _entry(self, token: int, p: Logprobs) -> Json:
        top = [self._candidate(t, logp) for t, logp in p.top]
        return self._candidate(token, p.chosen) | {"top_logprobs": top}

    def _candidate(self, token: int, logp: float) -> Json:
        """A token that is part of a character has no text, and its bytes are unknown."""
        text = self.token_text(token)
        return {"token": text, "logprob": logp,
                "bytes": None if BROKEN in text else list(text.encode())}
