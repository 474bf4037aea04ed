"""The answers to one request: whole, or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..engine.request import Output
from ..errors import EventTensorError
from .deltas import Delta, OutputParser, PlainText
from .error_formats import form_of
from .error_responses import failure_of
from .output_queue import Answers, ClientGone, until_gone
from .response_writer import JSON, AnswerDelta, Event, ResponseWriter, Usage, WholeAnswer
from .token_count import TokenCount

_SMALL = 64  # tokens of answers with log probabilities that are written at once


class AnswerStream:
    """The answers to one request, whole or event by event. `prompt_tokens`: of all prompts;
    `make_parser` is called for each answer."""

    def __init__(
        self, answers: Answers, writer: ResponseWriter, prompt_tokens: int,
        make_parser: Callable[[], OutputParser] = PlainText,
    ) -> None:
        self.answers, self.writer = answers, writer
        self._parsers = [make_parser() for _ in answers.requests]
        self._usage = Usage(prompt_tokens, 0, 0)
        self._reasoning = None if make_parser is PlainText else TokenCount()
        self._coming = aiter(answers)
        self._first: list[tuple[int, Output]] = []

    async def whole(self) -> bytes:
        """As JSON. Log probabilities make it large: then it is written beside the event loop."""
        found = [WholeAnswer() for _ in self.answers.requests]
        async for k, output in self._coming:
            found[k].parsed.add(self._deltas(k, output))
            found[k].tokens += output.tokens
            found[k].finish, found[k].stop = output.finish, self._stop(k, output)
            found[k].end, found[k].prompt = output.end, output.prompt or found[k].prompt
        has_logprobs = any(t.logprobs for some in found for t in some.tokens[:1])
        has_scores = any(some.prompt for some in found)
        if has_scores or (has_logprobs and self._usage.answer > _SMALL):
            # Part by part, so that other threads run meanwhile.
            text = await asyncio.to_thread(
                lambda: "".join(JSON.iterencode(self.writer.whole(found, self._usage))))
        else:
            text = JSON.encode(self.writer.whole(found, self._usage))
        return text.encode()

    async def begin(self) -> None:
        """Waits for what comes first."""
        self._first.append(await anext(self._coming))
        self._count_cached()

    async def events(self) -> AsyncIterator[Event]:
        usage = self._usage
        for event in self.writer.begin(usage):
            yield event
        async for k, output in self._all():
            new = AnswerDelta(k, self._deltas(k, output), output.tokens, output.finish,
                              self._stop(k, output), output.end, output.prompt)
            for event in self.writer.events(new, usage):
                yield event
                if output.prompt:
                    await asyncio.sleep(0)  # a prompt may be many events
        for event in self.writer.end(usage):
            yield event

    def _deltas(self, answer: int, output: Output) -> list[Delta]:
        parser = self._parsers[answer]
        found = parser.push(output.text)
        if output.finish is not None:
            found += parser.end()
            self._count_cached()
        self._usage.answer += len(output.tokens)
        if self._reasoning is not None:
            self._reasoning.add(answer, len(output.tokens), found)
            self._usage.reasoning = self._reasoning.reasoning
        return found

    def _count_cached(self) -> None:
        """A request knows it with its first output."""
        self._usage.cached = sum(r.reused for r in self.answers.requests)

    def _stop(self, answer: int, output: Output) -> str | None:
        return None if output.finish is None else self.answers.requests[answer].transcript.stop

    async def _all(self) -> AsyncIterator[tuple[int, Output]]:
        for first in self._first:
            yield first
        async for item in self._coming:
            yield item


class EventStream(Response):
    """Server-sent events. An error that comes late is an event."""

    media_type = "text/event-stream"

    def __init__(self, stream: AnswerStream) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._say(send, scope["path"]))
        except ClientGone:
            return
        finally:
            self._stream.answers.end()

    async def _say(self, send: Send, path: str) -> None:
        writer = self._stream.writer
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for event in self._stream.events():
                await _send(send, event)
        except Exception as e:
            for event in writer.failed(form_of(path)(failure_of(e))):
                await _send(send, event)
            if not isinstance(e, EventTensorError):  # the log gets it
                await send({"type": "http.response.body", "body": writer.last})
                raise
        await send({"type": "http.response.body", "body": writer.last})


async def _send(send: Send, event: Event) -> None:
    data = event.data if isinstance(event.data, str) else JSON.encode(event.data)
    text = f"data: {data}\n\n" if event.name is None else f"event: {event.name}\ndata: {data}\n\n"
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
