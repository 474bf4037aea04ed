"""Writes messages, whole or as events. Both have the same content."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...engine.request import FinishReason
from ..deltas import ArgumentsDelta, CallDelta, Delta, ReasoningDelta, TextDelta
from ..response_writer import AnswerDelta, Event, Json, ResponseWriter, Usage, WholeAnswer


@dataclass
class MessagesWriter(ResponseWriter):
    """`open` is the kind of the block that has not ended. `blocks` counts the started blocks."""

    model: str
    id: str = field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")
    open: type[Delta] | None = None
    blocks: int = 0
    has_calls: bool = False
    finish: FinishReason | None = None
    stop: str | None = None
    last = b""

    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> Json:
        (answer,) = answers
        parsed, self.finish, self.stop = answer.parsed, answer.finish, answer.stop
        self.has_calls = bool(parsed.calls)
        content: list[Json] = []
        if parsed.reasoning:
            content.append({"type": "thinking", "thinking": parsed.reasoning, "signature": ""})
        if parsed.text:
            content.append({"type": "text", "text": parsed.text})
        for call in parsed.calls:
            content.append({"type": "tool_use", "id": call.id, "name": call.name,
                            "input": _input(call.arguments)})
        return self._message(usage) | {"content": content, **self._stop_reason()}

    def begin(self, usage: Usage) -> Iterable[Event]:
        yield _event("message_start", {"message": self._message(usage)})

    def events(self, new: AnswerDelta, usage: Usage) -> Iterable[Event]:
        for delta in new.deltas:
            yield from self._delta_events(delta)
        if new.finish is not None:
            self.finish, self.stop = new.finish, new.stop

    def end(self, usage: Usage) -> Iterable[Event]:
        yield from self._close_block()
        yield _event("message_delta", {"delta": self._stop_reason(), "usage": _usage_json(usage)})
        yield _event("message_stop", {})

    def failed(self, error: Json) -> Iterable[Event]:
        return (Event(error, "error"),)

    def _delta_events(self, delta: Delta) -> Iterator[Event]:
        match delta:
            case TextDelta(text):
                if self.open is not TextDelta:
                    yield from self._open_block(TextDelta, {"type": "text", "text": ""})
                yield self._block_delta({"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                if self.open is not ReasoningDelta:
                    thinking = {"type": "thinking", "thinking": "", "signature": ""}
                    yield from self._open_block(ReasoningDelta, thinking)
                yield self._block_delta({"type": "thinking_delta", "thinking": text})
            case CallDelta(_, name, id):
                self.has_calls = True
                use: Json = {"type": "tool_use", "id": id, "name": name, "input": {}}
                yield from self._open_block(CallDelta, use)
            case ArgumentsDelta(_, text):
                yield self._block_delta({"type": "input_json_delta", "partial_json": text})

    def _open_block(self, kind: type[Delta], block: Json) -> Iterator[Event]:
        """Ends the open block and starts one."""
        yield from self._close_block()
        self.open, self.blocks = kind, self.blocks + 1
        yield _event("content_block_start", {"index": self.blocks - 1, "content_block": block})

    def _block_delta(self, delta: Json) -> Event:
        return _event("content_block_delta", {"index": self.blocks - 1, "delta": delta})

    def _close_block(self) -> Iterator[Event]:
        if self.open is not None:
            self.open = None
            yield _event("content_block_stop", {"index": self.blocks - 1})

    def _stop_reason(self) -> Json:
        reason = "end_turn"
        if self.finish is FinishReason.length:
            reason = "max_tokens"
        elif self.stop is not None:
            reason = "stop_sequence"
        elif self.has_calls:
            reason = "tool_use"
        return {"stop_reason": reason, "stop_sequence": self.stop}

    def _message(self, usage: Usage) -> Json:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.model,
                "content": [], "stop_reason": None, "stop_sequence": None,
                "usage": _usage_json(usage)}


def _event(kind: str, data: Json) -> Event:
    return Event({"type": kind, **data}, kind)


def _usage_json(usage: Usage) -> Json:
    """`input_tokens` excludes the tokens from the prefix cache."""
    found: Json = {"input_tokens": usage.prompt - usage.cached, "output_tokens": usage.answer,
                   "cache_read_input_tokens": usage.cached, "cache_creation_input_tokens": 0}
    if usage.reasoning:
        found["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return found


def _input(arguments: str) -> Json:
    """Always an object. Truncated arguments become an empty one, because a part of them may mean
    something else."""
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
