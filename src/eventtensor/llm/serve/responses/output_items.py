"""The output items of a streamed response, with the events of their start, deltas and end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..response_writer import Json

Status = Literal["in_progress", "completed", "incomplete"]
NamedEvent = tuple[str, Json]  # event type, and data without type and sequence number


@dataclass
class OutputItem(ABC):
    id: str
    index: int  # in the response's output
    pieces: list[str] = field(default_factory=list)  # of text or arguments

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @abstractmethod
    def json(self, status: Status) -> Json: ...

    @abstractmethod
    def content_begin(self) -> Iterator[NamedEvent]: ...

    @abstractmethod
    def content_end(self) -> Iterator[NamedEvent]: ...

    def begin(self) -> Iterator[NamedEvent]:
        yield ("response.output_item.added",
               {"output_index": self.index, "item": self.json("in_progress")})
        yield from self.content_begin()

    def end(self, status: Status) -> Iterator[NamedEvent]:
        yield from self.content_end()
        yield ("response.output_item.done",
               {"output_index": self.index, "item": self.json(status)})

    def _position(self) -> Json:
        return {"item_id": self.id, "output_index": self.index}

    def _part_position(self) -> Json:
        """Items with content have one part."""
        return self._position() | {"content_index": 0}


@dataclass
class MessageOutput(OutputItem):
    logprobs: list[Json] = field(default_factory=list)

    def json(self, status: Status) -> Json:
        content = [] if status == "in_progress" else [self._part()]
        return {"id": self.id, "type": "message", "role": "assistant", "status": status,
                "content": content}

    def content_begin(self) -> Iterator[NamedEvent]:
        yield "response.content_part.added", self._part_position() | {"part": self._part()}

    def add(self, text: str, logprobs: Sequence[Json]) -> NamedEvent:
        self.pieces.append(text)
        self.logprobs += logprobs
        return ("response.output_text.delta",
                self._part_position() | {"delta": text, "logprobs": logprobs})

    def content_end(self) -> Iterator[NamedEvent]:
        yield ("response.output_text.done",
               self._part_position() | {"text": self.text, "logprobs": self.logprobs})
        yield "response.content_part.done", self._part_position() | {"part": self._part()}

    def _part(self) -> Json:
        return {"type": "output_text", "text": self.text, "annotations": [],
                "logprobs": self.logprobs}


class ReasoningOutput(OutputItem):
    def json(self, status: Status) -> Json:
        content = [] if status == "in_progress" else [self._part()]
        return {"id": self.id, "type": "reasoning", "status": status, "summary": [],
                "content": content}

    def content_begin(self) -> Iterator[NamedEvent]:
        yield "response.content_part.added", self._part_position() | {"part": self._part()}

    def add(self, text: str) -> NamedEvent:
        self.pieces.append(text)
        return "response.reasoning_text.delta", self._part_position() | {"delta": text}

    def content_end(self) -> Iterator[NamedEvent]:
        yield "response.reasoning_text.done", self._part_position() | {"text": self.text}
        yield "response.content_part.done", self._part_position() | {"part": self._part()}

    def _part(self) -> Json:
        return {"type": "reasoning_text", "text": self.text}


@dataclass
class CallOutput(OutputItem):
    name: str = ""
    call_id: str = ""

    def json(self, status: Status) -> Json:
        return {"id": self.id, "type": "function_call", "status": status, "name": self.name,
                "call_id": self.call_id, "arguments": self.text}

    def content_begin(self) -> Iterator[NamedEvent]:
        return iter(())

    def add(self, text: str) -> NamedEvent:
        self.pieces.append(text)
        return "response.function_call_arguments.delta", self._position() | {"delta": text}

    def content_end(self) -> Iterator[NamedEvent]:
        yield ("response.function_call_arguments.done",
               self._position() | {"arguments": self.text, "name": self.name})
