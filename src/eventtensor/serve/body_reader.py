"""Bodies of requests: their bytes and values are bounded before a parser sees them, because every
other thread of the process waits for a parser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from .content_encoding import decoder_of
from .output_queue import ClientGone
from .strict_body import Body

B = TypeVar("B", bound=Body)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_SMALL = 64 << 10  # bytes of a body that count towards no sum
_VALUES, _MEMBERS = 1 << 16, 1 << 14


@dataclass(frozen=True)
class BodyLimits:
    """`most` bytes of one body, and `sum` of all that are read at a time, beyond the first 64 KB of
    each. A body has up to `values` values; up to `members` of them are lists, objects or fields,
    which cost a parser most."""

    most: int = 4 << 20
    sum: int = 64 << 20
    values: int = _VALUES
    members: int = _MEMBERS

    @staticmethod
    def of(context: int, most: int) -> BodyLimits:
        """A prompt may be the tokens of a whole context."""
        return BodyLimits(most, max(64 << 20, 2 * most), _VALUES + context)


class Meter:
    """Counts what a body has, piece by piece: commas and brackets outside of its texts."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._bytes = self._members = 0
        self._values = 1
        self._in_text, self._cut = False, b""

    def add(self, piece: bytes) -> None:
        """An error once there is too much."""
        self._bytes += len(piece)
        if self._bytes > self._limits.most:
            raise HTTPException(413, f"the body has more than {self._limits.most} bytes")
        piece = self._cut + piece
        self._cut = b""
        if b"\\" in piece:
            piece = _ESCAPE.sub(b"", piece)
            if piece.endswith(b"\\"):  # what it escapes comes with the next piece
                piece, self._cut = piece[:-1], b"\\"
        parts = piece.split(b'"')
        outside = b"".join(parts[self._in_text :: 2])
        self._in_text ^= len(parts) % 2 == 0
        opened = outside.count(b"[") + outside.count(b"{")
        self._members += opened + outside.count(b":")
        self._values += opened + outside.count(b",")
        for found, most, what in (
            (self._values, self._limits.values, "values"),
            (self._members, self._limits.members, "lists, objects and fields"),
        ):
            if found > most:
                raise HTTPException(400, f"the body has more than {most} {what}")


class Bodies:
    """Reads and checks bodies, and bounds what all of them hold."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits, self._held = limits, 0

    @asynccontextmanager
    async def read(self, request: Request, kind: type[B]) -> AsyncIterator[B]:
        """What the body says; its bytes count until the block ends."""
        if not _is_json(request):
            raise HTTPException(415, "the body must be JSON: Content-Type: application/json")
        held = 0
        found, meter, decoder = bytearray(), Meter(self._limits), decoder_of(request.headers)
        try:
            async for sent in request.stream():
                for piece in decoder.pieces(sent):
                    meter.add(piece)
                    found += piece
                    more = max(0, len(found) - _SMALL) - held
                    if self._held + more > self._limits.sum:
                        raise HTTPException(429, "too many large bodies at a time")
                    held += more
                    self._held += more
            decoder.end()
            text = bytes(found)
            found.clear()
            yield kind.model_validate_json(text)
        except ClientDisconnect:
            raise ClientGone from None
        finally:
            self._held -= held


def _is_json(request: Request) -> bool:
    """A page of another site cannot send this type unless the browser asks here before."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "application/json"
