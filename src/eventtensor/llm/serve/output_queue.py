"""Brings engine outputs to the event loop, and cancels work whose client has disconnected.

`AsyncOutputQueue` crosses from the engine's thread to asyncio. `RequestGroup` submits the engine
requests of one HTTP request and iterates over their outputs. Nothing here formats a response.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.types import Receive

from ...errors import BadParameter, EventTensorError
from ..engine.engine_core import EngineCore
from ..engine.grammar import Grammar
from ..engine.request import FinishReason, Output, Request
from ..engine.sampling_params import SamplingParams

T = TypeVar("T")
PromptAndParams = tuple[list[int], SamplingParams]


class ClientDisconnected(Exception):
    """The client has closed the connection."""


class AsyncOutputQueue:
    """Carries outputs from the engine's thread to the event loop. One wake-up serves all outputs
    that are queued, because a wake-up costs the engine a system call and the interpreter lock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[RequestGroup, int, Output]] = deque()
        self._is_scheduled = False

    def put(self, group: RequestGroup, index: int, output: Output) -> None:
        """Any thread may call this."""
        self._queue.append((group, index, output))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """A `put` after the flag is cleared schedules another delivery."""
        self._is_scheduled = False
        while self._queue:
            group, index, output = self._queue.popleft()
            group.receive(index, output)


class RequestGroup:
    """Requests of the engine that are submitted together, all or none, with one grammar."""

    def __init__(
        self, engine: EngineCore, prompts: Sequence[PromptAndParams], queue: AsyncOutputQueue,
        grammar: Grammar | None = None,
    ) -> None:
        self._engine, self.requests = engine, list[Request]()
        if len(prompts) > (most := engine.max_open_requests):
            raise BadParameter(f"{len(prompts)} answers are asked for at a time",
                               hint=f"at most {most}: more never run and wait here")
        self.finishes: dict[int, FinishReason] = {}  # by index of the request
        self.error: EventTensorError | None = None
        self._unread: dict[int, list[Output]] = {}
        self._has_unread = asyncio.Event()
        try:
            for k, (tokens, params) in enumerate(prompts):
                sink = partial(queue.put, self, k)
                matcher = grammar.copy() if grammar is not None else None
                self.requests.append(engine.submit(tokens, params, sink, matcher))
        except BaseException:
            self.cancel()
            raise

    def receive(self, index: int, output: Output) -> None:
        """Only the event loop calls this."""
        if output.finish is not None:
            self.finishes[index], self.error = output.finish, output.error or self.error
        self._unread.setdefault(index, []).append(output)
        self._has_unread.set()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Output]]:
        """Pairs of a request's index and its next output. Outputs that queued up are joined into
        one. The error of a failed request is raised."""
        left = len(self.requests)
        while left:
            await self._has_unread.wait()
            self._has_unread.clear()
            unread, self._unread = self._unread, {}
            for k, outputs in unread.items():
                last = outputs[-1]
                if last.error is not None:
                    raise last.error
                left -= last.finish is not None
                yield k, last if len(outputs) == 1 else _join(outputs)

    def cancel(self) -> None:
        """Cancels the requests that have not finished."""
        for request in self.requests:
            if not request.is_over:
                self._engine.cancel(request)


def _join(outputs: Sequence[Output]) -> Output:
    return Output("".join(o.text for o in outputs), tuple(t for o in outputs for t in o.tokens),
                  outputs[-1].finish, end=outputs[-1].end,
                  prompt=next((o.prompt for o in outputs if o.prompt), ()))


async def run_until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. A disconnect cancels `work` and raises `ClientDisconnected`."""
    result = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_wait_disconnect(receive))
    try:
        await asyncio.wait((result, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnected
        return result.result()
    finally:
        for task in (result, disconnect):
            task.cancel()
        await asyncio.gather(result, disconnect, return_exceptions=True)


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
