"""Decompresses request bodies by their `Content-Encoding`: gzip, deflate or none.

A decoder yields small pieces, so that `body_reader.py` sees a limit before the next piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

_PIECE_BYTES = 64 << 10
_GZIP, _ZLIB = 31, 15
_FORMATS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


class Decoder(Protocol):
    def decode(self, sent: bytes) -> Iterator[bytes]: ...

    def check_end(self) -> None:
        """Raises an error if the compressed data is cut."""


class Identity:
    """Passes on a body without an encoding."""

    def decode(self, sent: bytes) -> Iterator[bytes]:
        yield sent

    def check_end(self) -> None:
        pass


class Inflater:
    def __init__(self, name: str, format: int) -> None:
        self._name, self._stream = name, zlib.decompressobj(format)

    def decode(self, sent: bytes) -> Iterator[bytes]:
        while sent:
            if self._stream.eof:
                raise self._error("there is more after its end")
            try:
                yield self._stream.decompress(sent, _PIECE_BYTES)
            except zlib.error:
                raise self._error("it cannot be inflated") from None
            sent = self._stream.unconsumed_tail or self._stream.unused_data

    def check_end(self) -> None:
        if not self._stream.eof:
            raise self._error("its end is missing")

    def _error(self, why: str) -> HTTPException:
        return HTTPException(400, f"the body is no {self._name}: {why}")


def find_decoder(headers: Headers) -> Decoder:
    encoding = ", ".join(headers.getlist("content-encoding")).strip().lower()
    if encoding in ("", "identity"):
        return Identity()
    if encoding not in _FORMATS:
        raise HTTPException(415, f"no body is read with the Content-Encoding {encoding[:80]!r}, "
                            "but with gzip and deflate", {"Accept-Encoding": "gzip, deflate"})
    return Inflater(encoding, _FORMATS[encoding])
