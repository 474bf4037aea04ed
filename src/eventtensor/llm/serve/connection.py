"""An HTTP connection of uvicorn with limits on sizes, times and the number of connections.

uvicorn and its parser have no such limits. `body_reader.py` bounds the values of a body."""

from __future__ import annotations

import asyncio
from asyncio.events import TimerHandle
from collections import Counter
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from .error_responses import error_response
from .request_ids import id_headers, request_id

_IDLE, _IN_HEAD, _IN_BODY, _IN_RESPONSE = range(4)
_LINGER_S, _LINGER_BYTES = 2.0, 8 << 20  # what a refused client may still send


@dataclass(frozen=True)
class ConnectionLimits:
    """A client has `receive_s` seconds for the head, for the body, and to read the response.
    Up to `max_pipelined` requests may wait behind the current one. Beyond `max_connections` a new
    connection replaces an idle one."""

    max_body_bytes: int
    max_head_bytes: int = 64 << 10
    max_fields: int = 128
    receive_s: float = 30.0
    max_pipelined: int = 8
    max_connections: int = 1024


class ParserStop(Exception):
    """Stops the parser from one of its callbacks."""


class Connection(HttpToolsProtocol):
    def __init__(
        self, limits: ConnectionLimits, statuses: Counter[int], **options: Any
    ) -> None:
        """`statuses` counts the responses that the application does not send."""
        super().__init__(**options)
        self._limits, self._statuses = limits, statuses
        self._in_head = self._in_body = False
        self._raw_bytes = 0  # of the head, or of the body as it was sent
        self._refusal: tuple[int, str] | None = None
        self._is_refused, self._dropped_bytes = False, 0
        self._deadline: TimerHandle | None = None
        self._write_deadline: TimerHandle | None = None
        self._current: RequestResponseCycle | None = None  # others are pipelined behind it

    # ---- open and close ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            others = [c for c in self.connections if isinstance(c, Connection) and c is not self]
            idlest = min(others, key=lambda c: c.activity)
            if idlest.activity == _IN_RESPONSE:
                self._refuse(503, "there are too many connections")
                return
            idlest.abort()
        self._start_deadline(self._limits.receive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel(self._deadline)
        self._cancel(self._write_deadline)
        self._disconnect_cycles()
        super().connection_lost(exc)

    @property
    def activity(self) -> int:
        """What the connection does; idle is the least."""
        if self._in_body and not self.pipeline:
            return _IN_BODY
        if self.cycle is not None and not self.cycle.response_complete:
            return _IN_RESPONSE
        return _IN_HEAD if self._in_head else _IDLE

    def abort(self) -> None:
        """Closes at once; unsent data is lost."""
        self.connections.discard(self)
        self.transport.abort()

    def _disconnect_cycles(self) -> None:
        """Tells the running handlers that their client has disconnected."""
        for cycle in (self._current, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    # ---- receive -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > _LINGER_BYTES:
                self.transport.abort()
            return
        was_in_body = self._in_body
        self._raw_bytes += len(data)
        self._parse(data)
        if self._is_refused:
            return
        if self._in_body:
            if self._raw_bytes > 2 * self._limits.max_body_bytes + self._limits.max_head_bytes:
                self._refuse(413, "the body is sent in too many parts")
        elif self._in_head:
            self._raw_bytes = 0 if was_in_body else self._raw_bytes  # a full head is checked later
            if self._raw_bytes > self._limits.max_head_bytes:
                self._refuse(431, f"the head has more than {self._limits.max_head_bytes} bytes")
        else:
            self._raw_bytes = 0
            has_timer = self.timeout_keep_alive_task is not None or self._deadline is not None
            if self.activity == _IDLE and not has_timer:
                self._start_deadline(self._limits.receive_s)  # for a head after empty lines

    def _parse(self, data: bytes) -> None:
        """The parser stops after a head that asks for another protocol. The server has none, so a
        new parser reads the head without that request, and then the body."""
        self._unset_keepalive_if_required()
        while data and not self._is_refused:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as e:
                data = self._plain_head() + data[e.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")

    def _plain_head(self) -> bytes:
        fields = [b"%b: %b" % f for f in self.headers if f[0] not in (b"upgrade", b"connection")]
        options = b",".join(value for name, value in self.headers if name == b"connection").lower()
        if b"close" in options:
            fields.append(b"connection: close")
        version = self.parser.get_http_version().encode()
        first = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)
        return b"\r\n".join((first, *fields, b"", b""))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        if self._deadline is None:
            self._start_deadline(self._limits.receive_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= self._limits.max_fields:
            self._refusal = 431, f"there are more than {self._limits.max_fields} fields"
            raise ParserStop
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.max_head_bytes:
            self._refusal = 431, f"the head has more than {self._limits.max_head_bytes} bytes"
        elif _length(self.headers) > self._limits.max_body_bytes:
            self._refusal = 413, f"the body has more than {self._limits.max_body_bytes} bytes"
        elif len(self.pipeline) >= self._limits.max_pipelined:
            self._refusal = 429, "too many requests are sent ahead of answers"
        elif self.parser.get_method() == b"CONNECT":
            self._refusal = 405, "this server is no proxy"
        if self._refusal is not None:
            raise ParserStop
        if self.parser.should_upgrade():
            return
        self._in_head, self._in_body, self._raw_bytes = False, True, 0
        self._start_deadline(self._limits.receive_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body = False
        self._cancel(self._deadline)
        self._deadline = None
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._current = cycle
        super()._start_asgi_task(cycle, app)

    # ---- send --------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.call_later(self._limits.receive_s, self.abort)

    def resume_writing(self) -> None:
        self._cancel(self._write_deadline)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        self.abort()

    # ---- refusals ----------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this when the parser finds no HTTP, or a callback has stopped it."""
        self._refuse(*(self._refusal or (400, msg)))

    def _expire(self) -> None:
        self._deadline = None
        if self._in_body and self.flow.read_paused:  # the server is the slow side
            self._start_deadline(self._limits.receive_s)
        elif self._in_head or self._in_body:
            self._refuse(408, f"the request did not come within {self._limits.receive_s:g} s")
        else:
            self.abort()

    def refuse_incomplete(self, message: str) -> None:
        if self.activity in (_IN_HEAD, _IN_BODY) and not self._is_refused:
            self._refuse(503, message)

    def _refuse(self, status: int, message: str) -> None:
        """Sends a last response, unless another one has started. The connection stays open for a
        while, because closing it while bytes arrive loses the response."""
        in_request, cycle = self._in_head or self._in_body, self._current
        has_started = cycle is not None and (
            self._in_body if cycle.response_complete else cycle.response_started)
        has_pipelined = bool(self.pipeline)
        self._is_refused, self._in_head, self._in_body = True, False, False
        self._disconnect_cycles()
        if has_started or has_pipelined:
            self.abort()
            return
        path = self.url.partition(b"?")[0].decode("latin-1") if in_request else ""
        found = error_response(status, message, path=path)
        self._statuses[status] += 1
        name = request_id(self.headers if in_request else ())
        fields = found.raw_headers + id_headers(name, path)
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(b"".join((
            STATUS_LINE[status], head, b"connection: close\r\n\r\n", found.body)))
        try:
            self.transport.write_eof()
        except OSError:  # the client is gone
            self.abort()
            return
        self.flow.resume_reading()
        self._start_deadline(_LINGER_S)

    # ---- time --------------------------------------------------------------------------------

    def _start_deadline(self, seconds: float) -> None:
        self._cancel(self._deadline)
        act = self.abort if self._is_refused else self._expire
        self._deadline = self.loop.call_later(seconds, act)

    @staticmethod
    def _cancel(timer: TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def _length(headers: list[tuple[bytes, bytes]]) -> int:
    """The Content-Length. The parser has checked that it is a number."""
    return max((int(value) for name, value in headers if name == b"content-length"), default=0)
