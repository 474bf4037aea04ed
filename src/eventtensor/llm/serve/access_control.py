"""Decides which requests are allowed: API keys, host names, and origins of browser pages.

Connections and their limits are in `connection.py`."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from .error_responses import error_response


class HostGuard:
    """Refuses requests to a loopback server under other host names than localhost and `names`.
    Otherwise another site could rebind its DNS name to this server and read answers."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, {"localhost", *(n.lower() for n in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [v for k, v in scope.get("headers", ()) if k == b"host"]
        if all(self._knows(host.decode("latin-1")) for host in hosts):
            await self._app(scope, receive, send)
            return
        refusal = error_response(421, "this server is not asked under that name; --allow-host "
                                 "allows one", path=scope.get("path", ""))
        await refusal(scope, receive, send)

    def _knows(self, host: str) -> bool:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return name.lower() in self._names or is_loopback(name)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allow_origins(app: ASGIApp, origins: Iterable[str]) -> ASGIApp:
    """Adds CORS, so that pages of these origins (`*`: all) may send requests and read responses."""
    return CORSMiddleware(app, allow_origins=tuple(origins), allow_headers=("*",),
                          allow_methods=("GET", "POST", "DELETE"),
                          expose_headers=("Retry-After", "X-Request-Id"))


class ApiKey:
    """The key of the server. Clients send `Authorization: Bearer KEY`, Anthropic's `x-api-key: KEY`
    or Azure's `api-key: KEY`. Browsers encode letters beyond ASCII as Latin-1, others as UTF-8."""

    def __init__(self, text: str) -> None:
        plain = text.encode(errors="surrogateescape")  # the bytes in the environment
        short = text.encode("latin-1") if all(c < "\u0100" for c in text) else plain
        self._forms = plain, short

    def matches(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """The comparison takes the same time for every wrong key."""
        given = [key for name, value in headers if (key := _find_key(name, value)) is not None]
        same = [hmac.compare_digest(key, form) for key in given for form in self._forms]
        return any(same)


def _find_key(name: bytes, value: bytes) -> bytes | None:
    """The key in a header, if the header has one."""
    if name in (b"x-api-key", b"api-key"):
        return value.strip()
    scheme, _, key = value.partition(b" ")
    return key.strip() if name == b"authorization" and scheme.lower() == b"bearer" else None
