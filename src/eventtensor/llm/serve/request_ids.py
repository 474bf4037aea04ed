"""Request ids: every response has an `x-request-id`, from the client or new.

The middleware also counts responses by status code."""

from __future__ import annotations

import logging
import re
import secrets
from collections import Counter
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = Iterable[tuple[bytes, bytes]]
_VISIBLE = re.compile(rb"[!-~]{1,128}")
_LOG = logging.getLogger("uvicorn.error")  # uvicorn logs the failure itself there


def request_id(headers: Headers) -> bytes:
    """The client's id, unless it is long or contains more than visible ASCII; else a new id."""
    given = next((value for name, value in headers if name == b"x-request-id"), b"")
    return given if _VISIBLE.fullmatch(given) else f"req_{secrets.token_hex(16)}".encode()


def id_headers(id: bytes, path: str) -> list[tuple[bytes, bytes]]:
    """Anthropic's clients read a header of another name."""
    found = [(b"x-request-id", id)]
    return [*found, (b"request-id", id)] if path.startswith("/v1/messages") else found


class RequestIdMiddleware:
    """Puts `request_id` into the scope of the wrapped app and into the response headers."""

    def __init__(self, app: ASGIApp, statuses: Counter[int]) -> None:
        self._app, self._statuses = app, statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = request_id(scope["headers"])
        scope["request_id"] = id.decode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._statuses[message["status"]] += 1
                message["headers"] = [*message["headers"], *id_headers(id, scope["path"])]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            _LOG.error("request %s has failed", scope["request_id"])
            raise
