"""Bodies that are sent compressed, as `Content-Encoding` says: gzip or deflate."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

_PIECE = 64 << 10  # bytes that are inflated at a time, so that limits are seen before the next
_GZIP, _ZLIB = 31, 15
_FORMATS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


class Decoder(Protocol):
    def pieces(self, sent: bytes) -> Iterator[bytes]: ...

    def end(self) -> None:
        """An error if more should have come."""


class Identity:
    """Of a body that is sent as it is."""

    def pieces(self, sent: bytes) -> Iterator[bytes]:
        yield sent

    def end(self) -> None:
        pass


class Inflater:
    def __init__(self, name: str, format: int) -> None:
        self._name, self._stream = name, zlib.decompressobj(format)

    def pieces(self, sent: bytes) -> Iterator[bytes]:
        while sent:
            if self._stream.eof:
                raise self._wrong("there is more after its end")
            try:
                yield self._stream.decompress(sent, _PIECE)
            except zlib.error:
                raise self._wrong("it cannot be inflated") from None
            sent = self._stream.unconsumed_tail or self._stream.unused_data

    def end(self) -> None:
        if not self._stream.eof:
            raise self._wrong("its end is missing")

    def _wrong(self, why: str) -> HTTPException:
        return HTTPException(400, f"the body is no {self._name}: {why}")


def decoder_of(headers: Headers) -> Decoder:
    asked = ", ".join(headers.getlist("content-encoding")).strip().lower()
    if asked in ("", "identity"):
        return Identity()
    if asked not in _FORMATS:
        raise HTTPException(415, f"no body is read with the Content-Encoding {asked[:80]!r}, but "
                            "with gzip and deflate", {"Accept-Encoding": "gzip, deflate"})
    return Inflater(asked, _FORMATS[asked])
