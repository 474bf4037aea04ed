"""The process: an engine behind uvicorn, drained when it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn

from ..engine.engine_core import Engine
from ..engine.llm import LLM
from ..errors import EngineStopped
from .app import AppOptions, make_app
from .connection import Connection, ConnectionLimits
from .listen_sockets import bind, not_free
from .watchdog import Watch

_TURN_S = 2e-4  # that a thread keeps the interpreter while the engine wants it: part of a step
_LAST_S = 5  # that a cut answer has to reach its client
_FILES = 128  # descriptors that are for other things than connections
_STUCK = 70  # exit status: a thread that cannot be ended keeps others from ending


@dataclass(frozen=True)
class ServeOptions:
    """`port` 0 is any that is free. What runs has `drain_s` to end when the server is told to; a
    step that is stuck has `patience_s` more before the process gives up. A client has `receive_s`
    for a head, and again for a body; there are up to `max_connections`."""

    app: AppOptions
    host: str = "127.0.0.1"
    port: int = 8000
    drain_s: int = 30
    patience_s: float = 60.0
    receive_s: float = 30.0
    max_connections: int = 1024


def serve(
    llm: LLM, options: ServeOptions, sockets: list[socket.socket] | None = None
) -> None:
    """Until a signal ends it. An engine that fails for good is an error. `sockets`: bound already,
    for the addresses of the host."""
    server: Server

    def give_up(reason: str, stuck: bool) -> None:
        if stuck:
            print(f"eventtensor: {reason}", file=sys.stderr, flush=True)
            os._exit(_STUCK)
        server.failure, server.should_exit = reason, True

    llm.engine.grammars.prepare()
    if llm.model.tokenizer is not None:
        llm.model.tokenizer.prepare()
    sys.setswitchinterval(_TURN_S)
    statuses = Counter[int]()
    watch = Watch(llm.engine, give_up, options.patience_s)
    limits = ConnectionLimits(body=options.app.max_body, receive_s=options.receive_s,
                              most=min(options.max_connections, _descriptors()))
    server = Server(uvicorn.Config(
        make_app(llm, options.app, watch, statuses), host=options.host, port=options.port,
        http=partial(Connection, limits, statuses),  # type: ignore[arg-type]
        lifespan="on", ws="none", log_level="error", access_log=False,
        timeout_graceful_shutdown=options.drain_s + 2 * _LAST_S, timeout_keep_alive=30),
        llm.engine, options.drain_s)
    server.run(sockets or bind(options.host, options.port))
    if not llm.close(timeout_s=llm.engine.options.step_limit_s):
        give_up("a step does not end, so the engine cannot be closed", True)
    if server.failure is not None:
        raise EngineStopped(server.failure)


def _descriptors() -> int:
    """Connections that the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - _FILES) if soft != resource.RLIM_INFINITY else 1 << 20


class Server(uvicorn.Server):
    """Says where it listens, and ends without a signal of its own when it is drained. What does not
    end in `drain_s` is cut: streams get an error and their end."""

    def __init__(self, config: uvicorn.Config, engine: Engine, drain_s: float) -> None:
        super().__init__(config)
        self.failure: str | None = None
        self._engine, self._drain_s = engine, drain_s

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        loop = asyncio.get_running_loop()
        timers = (loop.call_later(self._drain_s, self._cut),
                  loop.call_later(self._drain_s + _LAST_S, self._abort))
        await super().shutdown(sockets)
        for timer in timers:
            timer.cancel()
        self._abort()

    def _cut(self) -> None:
        self._engine.fail_open(EngineStopped("the server ends", place="server"))
        for connection in self._connections():
            connection.refuse_half_sent("the server ends")

    def _abort(self) -> None:
        """Those who still answer are cancelled, which uvicorn would tell with a traceback."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        for connection in self._connections():
            connection.abort()

    def _connections(self) -> list[Connection]:
        return [c for c in self.server_state.connections if isinstance(c, Connection)]

    async def startup(self, sockets: list[Any] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as e:  # another has begun to listen since the socket was bound
            raise not_free(self.config.host, self.config.port, e) from e
        for server in getattr(self, "servers", ()):
            for sock in server.sockets:
                host, port, *_ = sock.getsockname()
                shown = f"[{host}]" if ":" in host else host
                text = f"eventtensor: ready at http://{shown}:{port}/v1"
                print(text, file=sys.stderr, flush=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
