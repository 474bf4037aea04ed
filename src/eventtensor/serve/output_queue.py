"""Answers of the engine for asyncio, and work that ends when its client is gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.types import Receive

from ..engine.engine_core import Engine
from ..engine.grammar import Grammar
from ..engine.request import Finish, Output, Request
from ..engine.sampling_params import SamplingParams
from ..errors import BadParameter, EventTensorError

T = TypeVar("T")
Asked = tuple[list[int], SamplingParams]


class ClientGone(Exception):
    """There is nobody to answer to."""


class Mailbox:
    """Outputs on their way from the engine's thread to the event loop, which is woken once for all
    that have come since: each time costs the engine a system call, and its turn."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._new: deque[tuple[Answers, int, Output]] = deque()
        self._woken = False

    def put(self, answers: Answers, number: int, output: Output) -> None:
        """For any thread."""
        self._new.append((answers, number, output))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """What is put from here on wakes it again."""
        self._woken = False
        while self._new:
            answers, number, output = self._new.popleft()
            answers.hear(number, output)


class Answers:
    """Of several requests, begun together: if one of them cannot be, none is. All keep to the
    grammar."""

    def __init__(
        self, engine: Engine, asked: Sequence[Asked], mailbox: Mailbox,
        grammar: Grammar | None = None,
    ) -> None:
        self._engine, self.requests = engine, list[Request]()
        if len(asked) > engine.most:
            raise BadParameter(f"{len(asked)} answers are asked for at a time",
                               hint=f"at most {engine.most}: more never run and wait here")
        self.finishes: dict[int, Finish] = {}  # by the number of the request
        self.error: EventTensorError | None = None
        self._new: dict[int, list[Output]] = {}
        self._come = asyncio.Event()
        try:
            for k, (tokens, params) in enumerate(asked):
                sink = partial(mailbox.put, self, k)
                own = grammar.copy() if grammar is not None else None
                self.requests.append(engine.submit(tokens, params, sink, own))
        except BaseException:
            self.end()
            raise

    def hear(self, number: int, output: Output) -> None:
        """On the event loop."""
        if output.finish is not None:
            self.finishes[number], self.error = output.finish, output.error or self.error
        self._new.setdefault(number, []).append(output)
        self._come.set()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Output]]:
        """(number of the request, what is new of its answer). What has come meanwhile is one
        output. If one fails, its error is raised."""
        left = len(self.requests)
        while left:
            await self._come.wait()
            self._come.clear()
            new, self._new = self._new, {}
            for k, outputs in new.items():
                last = outputs[-1]
                if last.error is not None:
                    raise last.error
                left -= last.finish is not None
                yield k, last if len(outputs) == 1 else _joined(outputs)

    def end(self) -> None:
        """Those that are not over are given up."""
        for request in self.requests:
            if not request.over:
                self._engine.cancel(request)


def _joined(outputs: Sequence[Output]) -> Output:
    return Output("".join(o.text for o in outputs), tuple(t for o in outputs for t in o.tokens),
                  outputs[-1].finish, end=outputs[-1].end,
                  prompt=next((o.prompt for o in outputs if o.prompt), ()))


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; if the client leaves before, it is cancelled."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
