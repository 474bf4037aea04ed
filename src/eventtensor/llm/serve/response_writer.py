"""The interface of an API's response format: one JSON body, or the events of a stream.

`streaming.py` calls a writer; each API has its own in its package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from json import JSONEncoder
from typing import Any, NamedTuple

from ..engine.request import FinishReason, ScoredToken
from .deltas import Delta, ParsedAnswer

Json = dict[str, Any]
JSON = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Event(NamedTuple):
    """A server-sent event. `data` is an object or its JSON text. Some APIs name their events."""

    data: Json | str
    name: str | None = None


@dataclass(slots=True)
class Usage:
    """Tokens so far. `prompt` counts each prompt once. `cached` of them came from the prefix cache.
    `reasoning` is a part of `answer`."""

    prompt: int
    cached: int
    answer: int
    reasoning: int = 0


@dataclass
class WholeAnswer:
    """`stop` is the text of params.stop that ended the answer, `end` the token that did. `prompt`
    has the log probabilities of the prompt, if the request wants them."""

    parsed: ParsedAnswer = field(default_factory=ParsedAnswer)
    tokens: list[ScoredToken] = field(default_factory=list)
    finish: FinishReason | None = None
    stop: str | None = None
    end: ScoredToken | None = None
    prompt: Sequence[ScoredToken] = ()


@dataclass(slots=True)
class AnswerDelta:
    """New content of answer `index`. The last delta has `finish`, and `stop` or `end`: the text of
    params.stop or the token that ended the answer. The first delta has `prompt`: the log
    probabilities of the prompt, if the request wants them."""

    index: int
    deltas: Sequence[Delta]
    tokens: Sequence[ScoredToken]
    finish: FinishReason | None
    stop: str | None = None
    end: ScoredToken | None = None
    prompt: Sequence[ScoredToken] = ()


class ResponseWriter(ABC):
    """Formats the answers to one request. A writer may remember what it has sent."""

    last = b"data: [DONE]\n\n"  # the end of a stream

    @abstractmethod
    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> Json: ...

    def begin(self, usage: Usage) -> Iterable[Event]:
        """Events before the first delta."""
        return ()

    @abstractmethod
    def events(self, new: AnswerDelta, usage: Usage) -> Iterable[Event]: ...

    def end(self, usage: Usage) -> Iterable[Event]:
        """Events after the last delta."""
        return ()

    def failed(self, error: Json) -> Iterable[Event]:
        """Events for an error during a stream. `error` has the JSON format of this API."""
        return (Event(error),)
