"""Binds the sockets that the server listens on, before the weights load.

A taken address is therefore an error at once. uvicorn accepts the connections."""

from __future__ import annotations

import errno
import socket

from ...errors import BadAddress

_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # on this machine
_TRIES = 16  # port 0: a free port may be taken at another address of the host


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all with the same port."""
    for left in reversed(range(1 if port else _TRIES)):
        try:
            return _bind_all(host, port)
        except OSError as e:
            if not left or e.errno != errno.EADDRINUSE:
                raise address_error(host, port, e) from e
    raise AssertionError


def address_error(host: str, port: int, cause: OSError) -> BadAddress:
    return BadAddress(f"cannot listen at {host}, port {port}: {cause.strerror or cause}")


def _bind_all(host: str, port: int) -> list[socket.socket]:
    sockets, missing = list[socket.socket](), None
    try:
        for family, kind, _, _, address in dict.fromkeys(socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)):
            try:
                sockets.append(_bind_one(family, kind, address, port or _port(sockets)))
            except OSError as e:
                if e.errno not in _NO_SUCH_ADDRESS:
                    raise
                missing = e
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    if not sockets and missing is not None:
        raise missing
    return sockets


def _bind_one(family: int, kind: int, address: tuple[object, ...], port: int) -> socket.socket:
    # asyncio turns Nagle's algorithm off only for sockets that name TCP. With it, the body of an
    # answer waits up to 40 ms until the client acknowledges the head.
    sock = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # another socket serves IPv4
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address[0], port, *address[2:]))
    except OSError:
        sock.close()
        raise
    return sock


def _port(sockets: list[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1]) if sockets else 0
