"""Every request has a name, `x-request-id`: the one that it came with, or a new one. Every answer
says it."""

from __future__ import annotations

import logging
import re
import secrets
from collections import Counter
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = Iterable[tuple[bytes, bytes]]
_VISIBLE = re.compile(rb"[!-~]{1,128}")
_LOG = logging.getLogger("uvicorn.error")  # which tells of the failure itself


def request_id(headers: Headers) -> bytes:
    """One that is long, or has other than visible ASCII letters, is not sent back."""
    given = next((value for name, value in headers if name == b"x-request-id"), b"")
    return given if _VISIBLE.fullmatch(given) else f"req_{secrets.token_hex(16)}".encode()


def id_headers(name: bytes, path: str) -> list[tuple[bytes, bytes]]:
    """Anthropic's clients read a header of another name."""
    found = [(b"x-request-id", name)]
    return [*found, (b"request-id", name)] if path.startswith("/v1/messages") else found


class RequestIdMiddleware:
    """Around an app, which finds the name as `request_id` in its scope. Counts answers by their
    status."""

    def __init__(self, app: ASGIApp, statuses: Counter[int]) -> None:
        self._app, self._statuses = app, statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = request_id(scope["headers"])
        scope["request_id"] = name.decode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._statuses[message["status"]] += 1
                message["headers"] = [*message["headers"], *id_headers(name, scope["path"])]
            await send(message)

        try:
            await self._app(scope, receive, named)
        except Exception:
            _LOG.error("request %s has failed", scope["request_id"])
            raise
