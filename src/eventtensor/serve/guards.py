"""Who may ask: holders of the key, and pages of other sites only if they were named."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from .failing import error_response


class HostGuard:
    """A server at the loopback address is asked under a name of that address, or under one of
    `names`. Else a page of another site could have its own name lead here, and read answers."""

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


def with_origins(app: ASGIApp, origins: Iterable[str]) -> ASGIApp:
    """Pages of these origins (`*`: of all) may ask, and read answers and errors."""
    return CORSMiddleware(app, allow_origins=tuple(origins), allow_methods=("GET", "POST"),
                          allow_headers=("*",), expose_headers=("Retry-After",))


class Key:
    """What clients must send: `Authorization: Bearer KEY`. Browsers send letters beyond ASCII as
    Latin-1, others as UTF-8."""

    def __init__(self, text: str) -> None:
        plain = text.encode(errors="surrogateescape")  # as the environment has it
        short = text.encode("latin-1") if all(c < "\u0100" for c in text) else plain
        self._forms = plain, short

    def fits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """The time does not tell how much of a wrong key is right."""
        given = next((v for k, v in headers if k == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        same = [hmac.compare_digest(key.strip(), form) for form in self._forms]
        return scheme.lower() == b"bearer" and any(same)
