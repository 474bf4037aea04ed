"""What an API makes of answers: one JSON text, or the events of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from json import JSONEncoder
from typing import Any, NamedTuple

from ..engine.request import Chosen, Finish
from .deltas import Delta, ParsedAnswer

Json = dict[str, Any]
JSON = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Event(NamedTuple):
    """Of a stream: an object, or its JSON text. `name` is on a line of its own, in APIs that name
    their events."""

    data: Json | str
    name: str | None = None


@dataclass(slots=True)
class Usage:
    """Tokens so far: of all prompts, each once; of those, found in the prefix cache; of all
    answers; of those, reasoning."""

    prompt: int
    cached: int
    answer: int
    reasoning: int = 0


@dataclass
class WholeAnswer:
    """`stop`: the text of params.stop that has ended it; `end`: the token that has. `prompt` has
    the log probabilities of the prompt, if they were asked for."""

    parsed: ParsedAnswer = field(default_factory=ParsedAnswer)
    tokens: list[Chosen] = field(default_factory=list)
    finish: Finish | None = None
    stop: str | None = None
    end: Chosen | None = None
    prompt: Sequence[Chosen] = ()


@dataclass(slots=True)
class AnswerDelta:
    """What is new of answer `index`. `finish` comes with the last of it, and with it `stop`: the
    text of params.stop that has ended it, or `end`: the token that has. `prompt` comes with the
    first of it: the log probabilities of the prompt, if they were asked for."""

    index: int
    deltas: Sequence[Delta]
    tokens: Sequence[Chosen]
    finish: Finish | None
    stop: str | None = None
    end: Chosen | None = None
    prompt: Sequence[Chosen] = ()


class ResponseWriter(ABC):
    """Of one API, for the answers to one request; it may keep what it has sent so far."""

    last = b"data: [DONE]\n\n"  # what a stream ends with

    @abstractmethod
    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> Json: ...

    def begin(self, usage: Usage) -> Iterable[Event]:
        """Before the first delta."""
        return ()

    @abstractmethod
    def events(self, new: AnswerDelta, usage: Usage) -> Iterable[Event]: ...

    def end(self, usage: Usage) -> Iterable[Event]:
        """After the last delta."""
        return ()

    def failed(self, error: Json) -> Iterable[Event]:
        """An error that comes late; `error` is in the form of this API, as with a status."""
        return (Event(error),)
