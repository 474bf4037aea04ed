"""Answers as JSON, in OpenAI's shapes: whole, or in chunks of a stream."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..engine.request import Chosen, Finish, Logprobs, Request
from ..models.text.tokenizer import BROKEN, Tokenizer

Json = dict[str, Any]


def usage(requests: Sequence[Request], prompts: int, given: int) -> Json:
    """`prompts`: tokens of all prompts, each once; `given`: of all answers."""
    return {"prompt_tokens": prompts, "completion_tokens": given, "total_tokens": prompts + given,
            "prompt_tokens_details": {"cached_tokens": sum(r.reused for r in requests)}}


@dataclass
class Shape(ABC):
    """What all parts of one answer share. Without a tokenizer, tokens stand for their text."""

    model: str
    tokenizer: Tokenizer | None
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    prefix = ""
    kind = ""
    chunk_kind = ""

    def whole(self, choices: list[Json], used: Json) -> Json:
        return self._head(self.kind) | {"choices": choices, "usage": used}

    def chunk(self, choices: list[Json], **more: Json | None) -> Json:
        return self._head(self.chunk_kind) | {"choices": choices} | more

    def _head(self, kind: str) -> Json:
        return {"id": f"{self.prefix}-{self.id}", "object": kind, "created": self.created,
                "model": self.model}

    @abstractmethod
    def choice(
        self, index: int, text: str, tokens: Sequence[Chosen], finish: Finish | None
    ) -> Json: ...

    @abstractmethod
    def piece(
        self, index: int, text: str, tokens: Sequence[Chosen], finish: Finish | None, first: bool
    ) -> Json: ...

    def text_of(self, token: int) -> str:
        if self.tokenizer is None:
            return f"token_id:{token}"
        return self.tokenizer.decode([token], special=True)


class ChatShape(Shape):
    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(
        self, index: int, text: str, tokens: Sequence[Chosen], finish: Finish | None
    ) -> Json:
        return {"index": index, "message": {"role": "assistant", "content": text},
                "logprobs": self._logprobs(tokens), "finish_reason": finish}

    def piece(
        self, index: int, text: str, tokens: Sequence[Chosen], finish: Finish | None, first: bool
    ) -> Json:
        delta = {"role": "assistant", "content": text} if first else {"content": text}
        return {"index": index, "delta": delta, "logprobs": self._logprobs(tokens),
                "finish_reason": finish}

    def _logprobs(self, tokens: Sequence[Chosen]) -> Json | None:
        known = [(t.token, t.logprobs) for t in tokens if t.logprobs is not None]
        return {"content": [self._entry(t, p) for t, p in known]} if known else None

    def _entry(self, token: int, p: Logprobs) -> Json:
        top = [self._likely(t, logp) for t, logp in p.top]
        return self._likely(token, p.chosen) | {"top_logprobs": top}

    def _likely(self, token: int, logp: float) -> Json:
        """Part of a character has no text, and its bytes are not told."""
        text = self.text_of(token)
        return {"token": text, "logprob": logp,
                "bytes": None if BROKEN in text else list(text.encode())}


@dataclass
class CompletionShape(Shape):
    """`at`: how long the text of each choice is so far, where log probabilities say it."""

    at: dict[int, int] = field(default_factory=dict)
    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def choice(
        self, index: int, text: str, tokens: Sequence[Chosen], finish: Finish | None
    ) -> Json:
        ids = {} if self.tokenizer is not None else {"token_ids": [t.token for t in tokens]}
        return {"index": index, "text": text, "logprobs": self._logprobs(index, tokens),
                "finish_reason": finish, **ids}

    def piece(
        self, index: int, text: str, tokens: Sequence[Chosen], finish: Finish | None, first: bool
    ) -> Json:
        return self.choice(index, text, tokens, finish)

    def _logprobs(self, index: int, tokens: Sequence[Chosen]) -> Json | None:
        known = [(self.text_of(t.token), t.logprobs) for t in tokens if t.logprobs is not None]
        if not known:
            return None
        offsets = []
        for text, _ in known:
            offsets.append(self.at.get(index, 0))
            self.at[index] = offsets[-1] + len(text)
        return {"tokens": [t for t, _ in known], "token_logprobs": [p.chosen for _, p in known],
                "top_logprobs": [{self.text_of(t): x for t, x in p.top} for _, p in known],
                "text_offset": offsets}
