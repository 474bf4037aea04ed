"""Writes responses, whole or as events. Both have the same content."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...engine.request import FinishReason
from ..deltas import (
    ArgumentsDelta,
    CallDelta,
    Delta,
    ParsedAnswer,
    ReasoningDelta,
    TextDelta,
)
from ..response_writer import AnswerDelta, Event, Json, ResponseWriter, Usage, WholeAnswer
from ..token_texts import TokenTexts
from .output_items import CallOutput, MessageOutput, NamedEvent, OutputItem, ReasoningOutput, Status

StoreCallback = Callable[[Json], None]  # stores a finished response, or does nothing


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(24)}"


def discard_response(response: Json) -> None:
    pass


@dataclass
class ResponsesWriter(ResponseWriter):
    """`echo` has the fields that repeat the request. `store` gets the finished response."""

    model: str
    texts: TokenTexts
    echo: Json
    store: StoreCallback = discard_response
    id: str = field(default_factory=lambda: new_id("resp"))
    created: int = field(default_factory=lambda: int(time.time()))
    output: list[OutputItem] = field(default_factory=list)  # all but the last are done
    last = b""

    def __post_init__(self) -> None:
        self._events = 0
        self._finish: FinishReason | None = None
        self._pending_logprobs: list[Json] = []  # their text comes later

    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> Json:
        (answer,) = answers
        new = AnswerDelta(0, list(_deltas(answer.parsed)), answer.tokens, answer.finish)
        for _ in self._answer_events(new):
            pass
        return self._finish_response(usage)

    def begin(self, usage: Usage) -> Iterable[Event]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, {"response": self._response("in_progress")})

    def events(self, new: AnswerDelta, usage: Usage) -> Iterable[Event]:
        for kind, data in self._answer_events(new):
            yield self._event(kind, data)

    def end(self, usage: Usage) -> Iterable[Event]:
        response = self._finish_response(usage)
        yield self._event(f"response.{response['status']}", {"response": response})

    def failed(self, error: Json) -> Iterable[Event]:
        facts = error["error"]
        yield self._event("error", {name: facts[name] for name in ("code", "message", "param")})
        response = self._response("failed") | {
            "error": {"code": "server_error", "message": facts["message"]}}
        yield self._event("response.failed", {"response": response})

    # ---- parts of an answer ------------------------------------------------------------------

    def _answer_events(self, new: AnswerDelta) -> Iterator[NamedEvent]:
        """Log probabilities wait for the next text."""
        self._pending_logprobs += self.texts.logprobs(new.tokens)
        for delta in new.deltas:
            yield from self._delta_events(delta)
        if new.finish is not None:
            self._finish = new.finish
            if not self.output:
                yield from self._open(MessageOutput(new_id("msg"), 0))
            if self._pending_logprobs and isinstance(item := self.output[-1], MessageOutput):
                yield self._text(item, "")
            yield from self.output[-1].end(self._status)

    def _delta_events(self, delta: Delta) -> Iterator[NamedEvent]:
        item = self.output[-1] if self.output else None
        at = len(self.output)
        match delta:
            case TextDelta(text):
                if not isinstance(item, MessageOutput):
                    item = MessageOutput(new_id("msg"), at)
                    yield from self._open(item)
                yield self._text(item, text)
            case ReasoningDelta(text):
                if not isinstance(item, ReasoningOutput):
                    item = ReasoningOutput(new_id("rs"), at)
                    yield from self._open(item)
                yield item.add(text)
            case CallDelta(_, name, call_id):
                yield from self._open(CallOutput(new_id("fc"), at, name=name, call_id=call_id))
            case ArgumentsDelta(_, text):
                assert isinstance(item, CallOutput), "arguments follow their call"
                yield item.add(text)

    def _open(self, item: OutputItem) -> Iterator[NamedEvent]:
        """Ends the previous item and starts this one."""
        if self.output:
            yield from self.output[-1].end("completed")
        self.output.append(item)
        yield from item.begin()

    def _text(self, item: MessageOutput, text: str) -> NamedEvent:
        logprobs, self._pending_logprobs = self._pending_logprobs, []
        return item.add(text, [_with_bytes(p) for p in logprobs])

    # ---- the response ------------------------------------------------------------------------

    @property
    def _status(self) -> Status:
        return "incomplete" if self._finish is FinishReason.length else "completed"

    def _finish_response(self, usage: Usage) -> Json:
        status = self._status
        items: list[Json] = [item.json("completed") for item in self.output[:-1]]
        items.append(self.output[-1].json(status))
        response = self._response(status) | {"output": items, "usage": _usage_json(usage)}
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["completed_at"] = int(time.time())
        self.store(response)
        return response

    def _response(self, status: str) -> Json:
        return {"id": self.id, "object": "response", "created_at": self.created, "status": status,
                "completed_at": None, "background": False, "error": None,
                "incomplete_details": None, "model": self.model, "output": [], "usage": None,
                **self.echo}

    def _event(self, kind: str, data: Json) -> Event:
        number, self._events = self._events, self._events + 1
        return Event({"type": kind, "sequence_number": number, **data}, kind)


def _with_bytes(logprob: Json) -> Json:
    """For parts of characters this API expects an empty list of bytes."""
    top = [_with_bytes(p) for p in logprob["top_logprobs"]] if "top_logprobs" in logprob else None
    more = {} if top is None else {"top_logprobs": top}
    return logprob | {"bytes": logprob["bytes"] or []} | more


def _usage_json(usage: Usage) -> Json:
    return {"input_tokens": usage.prompt, "output_tokens": usage.answer,
            "total_tokens": usage.prompt + usage.answer,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": usage.reasoning}}


def _deltas(parsed: ParsedAnswer) -> Iterator[Delta]:
    if parsed.reasoning:
        yield ReasoningDelta(parsed.reasoning)
    if parsed.text:
        yield TextDelta(parsed.text)
    for k, call in enumerate(parsed.calls):
        yield CallDelta(k, call.name, call.id)
        yield ArgumentsDelta(k, call.arguments)
