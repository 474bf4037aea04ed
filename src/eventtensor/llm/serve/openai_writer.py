"""What the writers of chat completions and completions share: head, usage and choices.

A stream has an event for nearly every token, so the head of a chunk is encoded once."""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from json.encoder import encode_basestring

from .deltas import TextDelta
from .response_writer import (
    JSON,
    AnswerDelta,
    Event,
    Json,
    ResponseWriter,
    Usage,
    WholeAnswer,
)
from .token_texts import TokenTexts


def usage_json(usage: Usage) -> Json:
    """Reasoning tokens are listed if there are any."""
    found: Json = {
        "prompt_tokens": usage.prompt, "completion_tokens": usage.answer,
        "total_tokens": usage.prompt + usage.answer,
        "prompt_tokens_details": {"cached_tokens": usage.cached}}
    if usage.reasoning:
        found["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return found


@dataclass
class OpenAIWriter(ResponseWriter):
    """`with_usage` adds usage to the last chunk, `usage_so_far` to every chunk. `prompt_logprobs`
    is the number of likeliest tokens for each prompt position, or None."""

    model: str
    texts: TokenTexts
    with_usage: bool = False
    usage_so_far: bool = False
    prompt_logprobs: int | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    prefix = ""
    kind = ""
    chunk_kind = ""

    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> Json:
        choices = [self.choice(k, answer) for k, answer in enumerate(answers)]
        return self._head(self.kind) | {"choices": choices, "usage": usage_json(usage)}

    def events(self, new: AnswerDelta, usage: Usage) -> Iterable[Event]:
        """A delta of text alone uses `text_frame`, which is fast."""
        after = self._after(usage)
        if (text := _only_text(new)) is not None and (frame := self.text_frame(new.index)):
            yield Event(f"{self._before}{frame[0]}{encode_basestring(text)}{frame[1]}{after}")
            return
        for piece in self.pieces(new):
            yield Event(f"{self._before}{JSON.encode(piece)}{after}")

    def end(self, usage: Usage) -> Iterable[Event]:
        if self.with_usage:
            yield Event(self._head(self.chunk_kind) | {"choices": [], "usage": usage_json(usage)})

    @abstractmethod
    def choice(self, index: int, answer: WholeAnswer) -> Json: ...

    @abstractmethod
    def pieces(self, new: AnswerDelta) -> Iterable[Json]:
        """The choices of the chunks."""

    def text_frame(self, answer: int) -> tuple[str, str] | None:
        """The JSON before and after the text of a choice without other content, or None."""
        return None

    @cached_property
    def _before(self) -> str:
        """The JSON of a chunk before its choice."""
        return JSON.encode(self._head(self.chunk_kind) | {"choices": []}).removesuffix("]}")

    def _after(self, usage: Usage) -> str:
        if not self.with_usage:
            return "]}"
        return f'],"usage":{JSON.encode(usage_json(usage)) if self.usage_so_far else "null"}}}'

    def _head(self, kind: str) -> Json:
        return {"id": f"{self.prefix}-{self.id}", "object": kind, "created": self.created,
                "model": self.model}


def _only_text(new: AnswerDelta) -> str | None:
    """The text of a delta without other content."""
    if len(new.deltas) != 1 or new.finish is not None or new.prompt:
        return None
    delta, tokens = new.deltas[0], new.tokens
    if tokens and tokens[0].logprobs is not None:  # all tokens of a request have them, or none
        return None
    return delta.text if isinstance(delta, TextDelta) else None
