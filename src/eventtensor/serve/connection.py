"""A connection: what a client may send of heads and bodies, how long it may take, and how many
connections there are. uvicorn and its parser bound none of it."""

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

_IDLE, _IN_HEAD, _IN_BODY, _ANSWERED = range(4)
_LINGER_S, _LINGER_BYTES = 2.0, 8 << 20  # that a refused client may still send


@dataclass(frozen=True)
class ConnectionLimits:
    """A head has up to `head` bytes and `fields` fields; a body `body` bytes. A client has
    `receive_s` seconds for the head, as many for the body, and as many to take what is sent.
    `pipelined` requests may wait behind the one that is answered. With `most` connections a new
    one takes the place of one that is idle."""

    body: int
    head: int = 64 << 10
    fields: int = 128
    receive_s: float = 30.0
    pipelined: int = 8
    most: int = 1024


class Refused(Exception):
    """Ends the parser's work, from one of its callbacks."""


class Connection(HttpToolsProtocol):
    def __init__(
        self, limits: ConnectionLimits, statuses: Counter[int], **options: Any
    ) -> None:
        """`statuses`: counts answers that the application does not give."""
        super().__init__(**options)
        self._limits, self._statuses = limits, statuses
        self._in_head = self._in_body = False
        self._raw = 0  # bytes of the head, or of the body as it was sent
        self._refusal: tuple[int, str] | None = None
        self._ended, self._dropped = False, 0  # after a refusal: bytes that nobody reads
        self._deadline: TimerHandle | None = None
        self._stalled: TimerHandle | None = None
        self._answered: RequestResponseCycle | None = None  # others are pipelined behind it

    # ---- begin and end -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.most:
            others = [c for c in self.connections if isinstance(c, Connection) and c is not self]
            idlest = min(others, key=lambda c: c.use)
            if idlest.use == _ANSWERED:
                self._refuse(503, "there are too many connections")
                return
            idlest.abort()
        self._wait(self._limits.receive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._deadline)
        self._stop(self._stalled)
        self._leave()
        super().connection_lost(exc)

    @property
    def use(self) -> int:
        """What it is used for: the least first."""
        if self._in_body and not self.pipeline:
            return _IN_BODY
        if self.cycle is not None and not self.cycle.response_complete:
            return _ANSWERED
        return _IN_HEAD if self._in_head else _IDLE

    def abort(self) -> None:
        """At once; what was not sent is lost."""
        self.connections.discard(self)
        self.transport.abort()

    def _leave(self) -> None:
        """Those who answer hear that their client is gone."""
        for cycle in (self._answered, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    # ---- what comes --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._ended:
            self._dropped += len(data)
            if self._dropped > _LINGER_BYTES:
                self.transport.abort()
            return
        began_in_body = self._in_body
        self._raw += len(data)
        self._parse(data)
        if self._ended:
            return
        if self._in_body:
            if self._raw > 2 * self._limits.body + self._limits.head:
                self._refuse(413, "the body is sent in too many parts")
        elif self._in_head:
            self._raw = 0 if began_in_body else self._raw  # the rest counts when it is complete
            if self._raw > self._limits.head:
                self._refuse(431, f"the head has more than {self._limits.head} bytes")
        else:
            self._raw = 0
            timed = self.timeout_keep_alive_task is not None or self._deadline is not None
            if self.use == _IDLE and not timed:
                self._wait(self._limits.receive_s)  # for a head after empty lines

    def _parse(self, data: bytes) -> None:
        """The parser stops behind a head that asks for another protocol. There is none here, so
        what follows is the body: another parser reads it, behind the head without the wish."""
        self._unset_keepalive_if_required()
        while data and not self._ended:
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
        wishes = b",".join(value for name, value in self.headers if name == b"connection").lower()
        if b"close" in wishes:
            fields.append(b"connection: close")
        version = self.parser.get_http_version().encode()
        first = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)
        return b"\r\n".join((first, *fields, b"", b""))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        if self._deadline is None:
            self._wait(self._limits.receive_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= self._limits.fields:
            self._refusal = 431, f"there are more than {self._limits.fields} fields"
            raise Refused
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.head:
            self._refusal = 431, f"the head has more than {self._limits.head} bytes"
        elif _length(self.headers) > self._limits.body:
            self._refusal = 413, f"the body has more than {self._limits.body} bytes"
        elif len(self.pipeline) >= self._limits.pipelined:
            self._refusal = 429, "too many requests are sent ahead of answers"
        elif self.parser.get_method() == b"CONNECT":
            self._refusal = 405, "this server is no proxy"
        if self._refusal is not None:
            raise Refused
        if self.parser.should_upgrade():
            return
        self._in_head, self._in_body, self._raw = False, True, 0
        self._wait(self._limits.receive_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body = False
        self._stop(self._deadline)
        self._deadline = None
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    # ---- what goes ---------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self._limits.receive_s, self.abort)

    def resume_writing(self) -> None:
        self._stop(self._stalled)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        self.abort()

    # ---- refusals ----------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """The parser has found no HTTP, or a callback has refused it."""
        self._refuse(*(self._refusal or (400, msg)))

    def _late(self) -> None:
        self._deadline = None
        if self._in_body and self.flow.read_paused:  # it waits for us
            self._wait(self._limits.receive_s)
        elif self._in_head or self._in_body:
            self._refuse(408, f"the request did not come within {self._limits.receive_s:g} s")
        else:
            self.abort()

    def refuse_half_sent(self, message: str) -> None:
        if self.use in (_IN_HEAD, _IN_BODY) and not self._ended:
            self._refuse(503, message)

    def _refuse(self, status: int, message: str) -> None:
        """The last answer on this connection, unless another is on its way. The client gets time to
        read it: a connection that is closed while bytes come loses what was sent."""
        in_request, answer = self._in_head or self._in_body, self._answered
        begun = answer is not None and (
            self._in_body if answer.response_complete else answer.response_started)
        waiting = bool(self.pipeline)
        self._ended, self._in_head, self._in_body = True, False, False
        self._leave()
        if begun or waiting:
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
        self._wait(_LINGER_S)

    # ---- time --------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        self._stop(self._deadline)
        act = self.abort if self._ended else self._late
        self._deadline = self.loop.call_later(seconds, act)

    @staticmethod
    def _stop(timer: TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def _length(headers: list[tuple[bytes, bytes]]) -> int:
    """What the head says of the body. The parser has checked that it is a number."""
    return max((int(value) for name, value in headers if name == b"content-length"), default=0)
