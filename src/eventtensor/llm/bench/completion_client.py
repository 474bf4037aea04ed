"""A client that streams completions and notes when each output arrives.

It uses asyncio and nothing else, so it takes little time from a server on the same machine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...errors import BadOption, StepFailed
from .results import RequestTiming


@dataclass(frozen=True)
class Address:
    """Where a server listens. `pid` is that of its process, if this process started it."""

    host: str
    port: int
    api_key: str | None = None
    pid: int = 0

    @staticmethod
    def parse(url: str, api_key: str | None = None) -> Address:
        try:
            at = urlsplit(url)
            return Address(at.hostname or "127.0.0.1", at.port or 80, api_key)
        except ValueError as e:
            raise BadOption(f"url is {url[:200]!r}: {e}", hint="as in http://127.0.0.1:8000") from e


async def fetch_model(at: Address) -> dict[str, Any]:
    reader, writer = await _open(at, "GET", "/v1/models", b"")
    try:
        text = b"".join([piece async for piece in _read_body(reader, await _read_head(reader))])
        found: dict[str, Any] = json.loads(text)["data"][0]
    except (ValueError, LookupError, TypeError, EOFError) as e:
        raise StepFailed(f"{at.host}:{at.port} does not answer as a server of models: {e!r}") from e
    finally:
        writer.close()
    return found


async def stream_completion(at: Address, body: dict[str, Any]) -> RequestTiming:
    """Streams one completion to its end."""
    wanted = body | {"stream": True, "stream_options": {"include_usage": True}}
    sent_at, arrivals, num_tokens = time.perf_counter(), list[float](), 0
    reader, writer = await _open(at, "POST", "/v1/completions", json.dumps(wanted).encode())
    try:
        async for event in _read_events(_read_body(reader, await _read_head(reader))):
            if "error" in event:
                raise StepFailed(event["error"]["message"])
            if event["choices"]:
                arrivals.append(time.perf_counter())
            num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
    finally:
        writer.close()
    return RequestTiming(sent_at, arrivals, num_tokens)


async def _open(
    at: Address, method: str, path: str, body: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    key = f"Authorization: Bearer {at.api_key}\r\n" if at.api_key else ""
    head = (f"{method} {path} HTTP/1.1\r\nHost: {at.host}\r\nConnection: close\r\n{key}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def _read_head(reader: asyncio.StreamReader) -> dict[str, str]:
    """The header fields of a response. A status other than 200 is an error."""
    status = (await reader.readline()).decode().split(" ", 2)
    fields: dict[str, str] = {}
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip().lower()
    if status[1] != "200":
        text = b"".join([piece async for piece in _read_body(reader, fields)])
        raise StepFailed(f"the server says {status[1]}: {text.decode()}")
    return fields


async def _read_body(reader: asyncio.StreamReader, head: dict[str, str]) -> AsyncIterator[bytes]:
    if head.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(head.get("content-length", 0)))
        return
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()


async def _read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        for text in whole:
            if text != b"data: [DONE]":
                yield json.loads(text.removeprefix(b"data: "))
