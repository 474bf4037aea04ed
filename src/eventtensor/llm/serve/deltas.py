"""Deltas of a streamed answer: text, reasoning and tool calls; and the parser interface.

Parsers make deltas from text, and each API's writer formats them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """Call `index` of an answer starts. Its arguments follow."""

    index: int
    name: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments of call `index`, as JSON text."""

    index: int
    text: str


Delta = TextDelta | ReasoningDelta | CallDelta | ArgumentsDelta


class OutputParser(Protocol):
    """Parses one answer. `push` takes new text and returns the deltas that are certain. `end`
    returns the rest, also for a truncated answer."""

    def push(self, text: str) -> list[Delta]: ...

    def end(self) -> list[Delta]: ...


class PlainText:
    """The parser for answers without reasoning and calls."""

    def push(self, text: str) -> list[Delta]:
        return [TextDelta(text)] if text else []

    def end(self) -> list[Delta]:
        return []


@dataclass
class ToolCall:
    """A call with its arguments so far."""

    name: str
    id: str
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@dataclass
class ParsedAnswer:
    """The content of an answer so far. It keeps the deltas and joins them on reading: a string that
    grows by each delta is copied each time."""

    calls: list[ToolCall] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def add(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            match delta:
                case TextDelta(text):
                    self._text.append(text)
                case ReasoningDelta(text):
                    self._reasoning.append(text)
                case CallDelta(_, name, id):
                    self.calls.append(ToolCall(name, id))
                case ArgumentsDelta(index, text):
                    self.calls[index].pieces.append(text)


def merge_deltas(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Joins adjacent deltas of one kind."""
    last: Delta | None = None
    for delta in deltas:
        match last, delta:
            case TextDelta(a), TextDelta(b):
                last = TextDelta(a + b)
            case ReasoningDelta(a), ReasoningDelta(b):
                last = ReasoningDelta(a + b)
            case ArgumentsDelta(i, a), ArgumentsDelta(j, b) if i == j:
                last = ArgumentsDelta(i, a + b)
            case None, _:
                last = delta
            case _:
                yield last
                last = delta
    if last is not None:
        yield last
