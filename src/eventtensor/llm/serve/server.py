"""Runs the HTTP server process: the engine behind uvicorn, and its shutdown.

A signal drains the server. A stuck step or a stopped engine ends it with a reason."""

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

from ...errors import EngineStopped
from ..engine.engine_core import EngineCore
from ..engine.llm import LLM
from .app import AppOptions, make_app
from .connection import Connection, ConnectionLimits
from .listen_sockets import address_error, bind
from .watchdog import Watchdog

# How long another thread keeps the interpreter while the engine waits for it: part of a step.
_SWITCH_INTERVAL_S = 2e-4
_FLUSH_S = 5  # for the error of a cut stream to reach its client
_RESERVED_FILES = 128  # file descriptors that connections do not get
_STUCK_STATUS = 70  # exit status; a thread inside a kernel cannot be ended


@dataclass(frozen=True)
class ServeOptions:
    """Port 0 takes a free port. Running requests get `drain_s` seconds to finish on shutdown. The
    process exits when a step is stuck for `patience_s` seconds. `receive_s` and `max_connections`
    are limits of connections."""

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
    """Serves until a signal arrives. Raises `EngineStopped` if the engine fails for good.
    `sockets` are bound already."""
    server: Server

    def give_up(reason: str, is_stuck: bool) -> None:
        if is_stuck:
            print(f"eventtensor: {reason}", file=sys.stderr, flush=True)
            os._exit(_STUCK_STATUS)
        server.failure, server.should_exit = reason, True

    llm.engine.grammars.prepare()
    if llm.model.tokenizer is not None:
        llm.model.tokenizer.prepare()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    statuses = Counter[int]()
    watchdog = Watchdog(llm.engine, give_up, options.patience_s)
    limits = ConnectionLimits(
        options.app.max_body_bytes, receive_s=options.receive_s,
        max_connections=min(options.max_connections, _available_descriptors()))
    server = Server(uvicorn.Config(
        make_app(llm, options.app, watchdog, statuses), host=options.host, port=options.port,
        http=partial(Connection, limits, statuses),  # type: ignore[arg-type]
        lifespan="on", ws="none", log_level="error", access_log=False,
        timeout_graceful_shutdown=options.drain_s + 2 * _FLUSH_S, timeout_keep_alive=30),
        llm.engine, options.drain_s)
    server.run(sockets or bind(options.host, options.port))
    if not llm.close(timeout_s=llm.engine.options.step_limit_s):
        give_up("a step does not end, so the engine cannot be closed", True)
    if server.failure is not None:
        raise EngineStopped(server.failure)


def _available_descriptors() -> int:
    """How many connections the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - _RESERVED_FILES) if soft != resource.RLIM_INFINITY else 1 << 20


class Server(uvicorn.Server):
    """Prints its address when it is ready, and does not repeat the signal after shutdown. Requests
    that do not finish in `drain_s` are cut: their streams get an error and an end."""

    def __init__(self, config: uvicorn.Config, engine: EngineCore, drain_s: float) -> None:
        super().__init__(config)
        self.failure: str | None = None
        self._engine, self._drain_s = engine, drain_s

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        loop = asyncio.get_running_loop()
        timers = (loop.call_later(self._drain_s, self._fail_requests),
                  loop.call_later(self._drain_s + _FLUSH_S, self._abort))
        await super().shutdown(sockets)
        for timer in timers:
            timer.cancel()
        self._abort()

    def _fail_requests(self) -> None:
        self._engine.fail_open_requests(EngineStopped("the server ends", place="server"))
        for connection in self._connections():
            connection.refuse_incomplete("the server ends")

    def _abort(self) -> None:
        """Cancels the remaining handlers, which uvicorn would log with a traceback."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        for connection in self._connections():
            connection.abort()

    def _connections(self) -> list[Connection]:
        return [c for c in self.server_state.connections if isinstance(c, Connection)]

    async def startup(self, sockets: list[Any] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as e:  # another process listens on the address since `bind`
            raise address_error(self.config.host, self.config.port, e) from e
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
