"""Sends the completions of one HTTP request, whole or as server-sent events.

`CompletionStream` parses engine outputs and lets the API's writer format them. The response class
sends the events. Formats are in the writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...errors import EventTensorError
from ..engine.request import Output
from .deltas import Delta, OutputParser, PlainText
from .error_formats import error_format
from .error_responses import error_info
from .output_queue import ClientDisconnected, RequestGroup, run_until_disconnect
from .response_writer import JSON, AnswerDelta, Event, ResponseWriter, Usage, WholeAnswer
from .token_count import TokenCount

# Larger answers with log probabilities are encoded in a thread.
_MAX_TOKENS_ON_LOOP = 64


class CompletionStream:
    """The completions of one HTTP request. `prompt_tokens` counts all prompts. Each completion gets
    its own parser from `make_parser`."""

    def __init__(
        self, group: RequestGroup, writer: ResponseWriter, prompt_tokens: int,
        make_parser: Callable[[], OutputParser] = PlainText,
    ) -> None:
        self.group, self.writer = group, writer
        self._parsers = [make_parser() for _ in group.requests]
        self._usage = Usage(prompt_tokens, 0, 0)
        self._reasoning = None if make_parser is PlainText else TokenCount()
        self._outputs = aiter(group)
        self._first: list[tuple[int, Output]] = []

    async def whole(self) -> bytes:
        """The JSON body. A thread encodes a body that log probabilities make large."""
        found = [WholeAnswer() for _ in self.group.requests]
        async for k, output in self._outputs:
            found[k].parsed.add(self._deltas(k, output))
            found[k].tokens += output.tokens
            found[k].finish, found[k].stop = output.finish, self._stop(k, output)
            found[k].end, found[k].prompt = output.end, output.prompt or found[k].prompt
        has_logprobs = any(t.logprobs for some in found for t in some.tokens[:1])
        has_scores = any(some.prompt for some in found)
        if has_scores or (has_logprobs and self._usage.answer > _MAX_TOKENS_ON_LOOP):
            # iterencode lets other threads run between parts.
            text = await asyncio.to_thread(
                lambda: "".join(JSON.iterencode(self.writer.whole(found, self._usage))))
        else:
            text = JSON.encode(self.writer.whole(found, self._usage))
        return text.encode()

    async def wait_first(self) -> None:
        """Waits for the first output, whose error still has a status code."""
        self._first.append(await anext(self._outputs))
        self._count_cached()

    async def events(self) -> AsyncIterator[Event]:
        usage = self._usage
        for event in self.writer.begin(usage):
            yield event
        async for k, output in self._all_outputs():
            new = AnswerDelta(k, self._deltas(k, output), output.tokens, output.finish,
                              self._stop(k, output), output.end, output.prompt)
            for event in self.writer.events(new, usage):
                yield event
                if output.prompt:
                    await asyncio.sleep(0)  # an echoed prompt may be many events
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
        """The engine knows a request's cached tokens with its first output."""
        self._usage.cached = sum(r.num_cached_tokens for r in self.group.requests)

    def _stop(self, answer: int, output: Output) -> str | None:
        if output.finish is None:
            return None
        return self.group.requests[answer].detokenizer.matched_stop

    async def _all_outputs(self) -> AsyncIterator[tuple[int, Output]]:
        for first in self._first:
            yield first
        async for item in self._outputs:
            yield item


class EventStreamResponse(Response):
    """Server-sent events. An error after the first event becomes an event."""

    media_type = "text/event-stream"

    def __init__(self, stream: CompletionStream) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_until_disconnect(receive, self._send_events(send, scope["path"]))
        except ClientDisconnected:
            return
        finally:
            self._stream.group.cancel()

    async def _send_events(self, send: Send, path: str) -> None:
        writer = self._stream.writer
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for event in self._stream.events():
                await _send(send, event)
        except Exception as e:
            for event in writer.failed(error_format(path)(error_info(e))):
                await _send(send, event)
            if not isinstance(e, EventTensorError):  # the log reports it
                await send({"type": "http.response.body", "body": writer.last})
                raise
        await send({"type": "http.response.body", "body": writer.last})


async def _send(send: Send, event: Event) -> None:
    data = event.data if isinstance(event.data, str) else JSON.encode(event.data)
    text = f"data: {data}\n\n" if event.name is None else f"event: {event.name}\ndata: {data}\n\n"
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
