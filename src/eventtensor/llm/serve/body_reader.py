"""Reads request bodies and bounds them before pydantic parses them.

A parser holds the interpreter lock, so the meter counts bytes and values as they arrive. Which
fields a body may have is in `strict_body.py` and in the packages of the APIs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from .content_encoding import find_decoder
from .output_queue import ClientDisconnected
from .strict_body import Body

B = TypeVar("B", bound=Body)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_FREE_BYTES = 64 << 10  # of each body; only more bytes count towards the total
_MAX_VALUES, _MAX_CONTAINERS = 1 << 16, 1 << 14


@dataclass(frozen=True)
class BodyLimits:
    """`max_bytes` bounds one body. `max_total_bytes` bounds all bodies in memory, without the first
    64 KB of each. `max_values` bounds the JSON values of a body, and `max_containers` its lists,
    objects and fields, which cost a parser most."""

    max_bytes: int = 4 << 20
    max_total_bytes: int = 64 << 20
    max_values: int = _MAX_VALUES
    max_containers: int = _MAX_CONTAINERS

    @staticmethod
    def for_context(context: int, max_bytes: int) -> BodyLimits:
        """A prompt may list the tokens of a whole context."""
        return BodyLimits(max_bytes, max(64 << 20, 2 * max_bytes), _MAX_VALUES + context)


class BodyMeter:
    """Counts the JSON values of a body that arrives in pieces: commas and brackets outside of
    strings."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._bytes = self._containers = 0
        self._values = 1
        self._in_string, self._rest = False, b""

    def add(self, piece: bytes) -> None:
        """Raises an error as soon as a limit is passed."""
        self._bytes += len(piece)
        if self._bytes > self._limits.max_bytes:
            raise HTTPException(413, f"the body has more than {self._limits.max_bytes} bytes")
        piece = self._rest + piece
        self._rest = b""
        if b"\\" in piece:
            piece = _ESCAPE.sub(b"", piece)
            if piece.endswith(b"\\"):  # the next piece starts with the escaped character
                piece, self._rest = piece[:-1], b"\\"
        parts = piece.split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        opened = outside.count(b"[") + outside.count(b"{")
        self._containers += opened + outside.count(b":")
        self._values += opened + outside.count(b",")
        for found, limit, what in (
            (self._values, self._limits.max_values, "values"),
            (self._containers, self._limits.max_containers, "lists, objects and fields"),
        ):
            if found > limit:
                raise HTTPException(400, f"the body has more than {limit} {what}")


class RequestBodyReader:
    """Reads and validates bodies, and bounds the bytes of all bodies in memory."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits, self._total_bytes = limits, 0

    @asynccontextmanager
    async def read(self, request: Request, kind: type[B]) -> AsyncIterator[B]:
        """Yields the validated body. Its bytes count towards the total until the block ends."""
        if not _is_json(request):
            raise HTTPException(415, "the body must be JSON: Content-Type: application/json")
        counted_bytes = 0
        found, meter, decoder = bytearray(), BodyMeter(self._limits), find_decoder(request.headers)
        try:
            async for sent in request.stream():
                for piece in decoder.decode(sent):
                    meter.add(piece)
                    found += piece
                    more = max(0, len(found) - _FREE_BYTES) - counted_bytes
                    if self._total_bytes + more > self._limits.max_total_bytes:
                        raise HTTPException(429, "too many large bodies at a time")
                    counted_bytes += more
                    self._total_bytes += more
            decoder.check_end()
            text = bytes(found)
            found.clear()
            yield kind.model_validate_json(text)
        except ClientDisconnect:
            raise ClientDisconnected from None
        finally:
            self._total_bytes -= counted_bytes


def _is_json(request: Request) -> bool:
    """A page of another site cannot send this type without a preflight request."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "application/json"
