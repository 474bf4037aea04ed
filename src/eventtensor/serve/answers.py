"""Answers of the engine for asyncio, and work that ends when its client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.types import Receive

from ..engine.loop import Engine
from ..engine.params import SamplingParams
from ..engine.request import Output, Request

T = TypeVar("T")
Asked = tuple[list[int], SamplingParams]


class ClientGone(Exception):
    """There is nobody to answer to."""


class Answers:
    """Of several requests, begun together: if one of them cannot be, none is."""

    def __init__(self, engine: Engine, asked: Sequence[Asked]) -> None:
        self._engine, self.requests = engine, list[Request]()
        self._new: asyncio.Queue[tuple[int, Output]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        try:
            for k, (tokens, params) in enumerate(asked):
                self.requests.append(engine.submit(tokens, params, partial(self._hear, k)))
        except BaseException:
            self.end()
            raise

    def _hear(self, number: int, output: Output) -> None:
        """On the thread of the engine."""
        self._loop.call_soon_threadsafe(self._new.put_nowait, (number, output))

    async def __aiter__(self) -> AsyncIterator[tuple[int, Output]]:
        """(number of the request, what is new of its answer). What has come meanwhile is one
        output. If one fails, its error is raised."""
        left = len(self.requests)
        while left:
            new: dict[int, Output] = {}
            for k, output in await self._come():
                if output.error is not None:
                    raise output.error
                left -= output.finish is not None
                new[k] = _joined(new.get(k, Output()), output)
            for k, output in new.items():
                yield k, output

    async def _come(self) -> list[tuple[int, Output]]:
        found = [await self._new.get()]
        while not self._new.empty():
            found.append(self._new.get_nowait())
        return found

    def end(self) -> None:
        """Those that are not over are given up."""
        for request in self.requests:
            if not request.over:
                self._engine.cancel(request)


def _joined(a: Output, b: Output) -> Output:
    return Output(a.text + b.text, a.tokens + b.tokens, b.finish)


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
