"""The answers to one body: whole, or as a stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..engine.request import Chosen, Finish, Output
from ..errors import EventTensorError
from .answers import Answers, ClientGone, until_gone
from .failing import error_json, status_of, text_of
from .shapes import Json, Shape, usage

_SMALL = 64  # tokens with log probabilities that are written at once
_WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Speech:
    """The answers to one body, whole or event by event. `prompts`: tokens of all prompts."""

    def __init__(self, answers: Answers, shape: Shape, prompts: int, wants_usage: bool) -> None:
        self.answers, self._shape, self._prompts = answers, shape, prompts
        self._wants_usage, self._given = wants_usage, 0
        self._coming = aiter(answers)
        self._first: list[tuple[int, Output]] = []

    async def whole(self) -> bytes:
        """As JSON. Log probabilities make it large: then it is written beside the event loop."""
        count = len(self.answers.requests)
        texts, tokens = [""] * count, [list[Chosen]() for _ in range(count)]
        ends: list[Finish | None] = [None] * count
        async for k, output in self._coming:
            texts[k] += output.text
            tokens[k] += output.tokens
            ends[k] = output.finish
        self._given = sum(map(len, tokens))

        def answer() -> Json:
            return self._shape.whole(
                [self._shape.choice(k, texts[k], tokens[k], ends[k]) for k in range(count)],
                self._usage())

        if self._given > _SMALL and any(t.logprobs for some in tokens for t in some[:1]):
            # Part by part, so that other threads run meanwhile.
            text = await asyncio.to_thread(lambda: "".join(_WRITER.iterencode(answer())))
        else:
            text = _WRITER.encode(answer())
        return text.encode()

    async def begin(self) -> None:
        """Waits for what comes first."""
        self._first.append(await anext(self._coming))

    async def events(self) -> AsyncIterator[Json]:
        more = {"usage": None} if self._wants_usage else {}
        heard = set[int]()
        async for k, output in self._all():
            self._given += len(output.tokens)
            if not (output.text or output.tokens or output.finish):
                continue
            piece = self._shape.piece(k, output.text, output.tokens, output.finish, k not in heard)
            heard.add(k)
            yield self._shape.chunk([piece], **more)
        if self._wants_usage:
            yield self._shape.chunk([], usage=self._usage())

    async def _all(self) -> AsyncIterator[tuple[int, Output]]:
        for first in self._first:
            yield first
        async for item in self._coming:
            yield item

    def _usage(self) -> Json:
        return usage(self.answers.requests, self._prompts, self._given)


class EventStream(Response):
    """Server-sent events, up to [DONE]. An error that comes late is an event."""

    media_type = "text/event-stream"

    def __init__(self, speech: Speech) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._speech = speech

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._say(send))
        except ClientGone:
            return
        finally:
            self._speech.answers.end()

    async def _say(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for event in self._speech.events():
                await self._event(send, event)
        except EventTensorError as e:
            await self._event(send, error_json(status_of(e), text_of(e)))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _event(self, send: Send, event: dict[str, Any]) -> None:
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        await send({"type": "http.response.body", "body": f"data: {text}\n\n".encode(),
                    "more_body": True})
