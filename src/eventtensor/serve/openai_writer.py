"""What chat completions and completions have in common: the head of an answer, usage, choices."""

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
    """What was reasoning is told where there was any."""
    found: Json = {
        "prompt_tokens": usage.prompt, "completion_tokens": usage.answer,
        "total_tokens": usage.prompt + usage.answer,
        "prompt_tokens_details": {"cached_tokens": usage.cached}}
    if usage.reasoning:
        found["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return found


@dataclass
class OpenAIWriter(ResponseWriter):
    """`with_usage`: a last chunk tells it; `usage_so_far`: every chunk does. `prompt_logprobs`: how
    many of the likeliest tokens are told at each place of the prompt, if they are."""

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
        """There is one for nearly every token, and the head is always the same."""
        after = self._after(usage)
        if (text := _only_text(new)) is not None and (plain := self.text_frame(new.index)):
            yield Event(f"{self._before}{plain[0]}{encode_basestring(text)}{plain[1]}{after}")
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
        """Choices of chunks."""

    def text_frame(self, answer: int) -> tuple[str, str] | None:
        """What is around the text of a choice that has nothing else; None: `pieces` makes it."""
        return None

    @cached_property
    def _before(self) -> str:
        """Of a chunk, what comes before its choice."""
        return JSON.encode(self._head(self.chunk_kind) | {"choices": []}).removesuffix("]}")

    def _after(self, usage: Usage) -> str:
        if not self.with_usage:
            return "]}"
        return f'],"usage":{JSON.encode(usage_json(usage)) if self.usage_so_far else "null"}}}'

    def _head(self, kind: str) -> Json:
        return {"id": f"{self.prefix}-{self.id}", "object": kind, "created": self.created,
                "model": self.model}


def _only_text(new: AnswerDelta) -> str | None:
    """The text of a delta that has nothing else, as nearly all have."""
    if len(new.deltas) != 1 or new.finish is not None or new.prompt:
        return None
    (delta,) = new.deltas
    has_more = any(t.logprobs is not None for t in new.tokens)
    return delta.text if isinstance(delta, TextDelta) and not has_more else None
