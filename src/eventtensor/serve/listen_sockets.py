"""The addresses that a server listens at: bound before anything that takes long."""

from __future__ import annotations

import errno
import socket

from ..errors import BadAddress

_ELSEWHERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # this machine has no such addresses
_TRIES = 16  # of a free port, which all addresses of a host must have


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all with the same port."""
    for left in reversed(range(1 if port else _TRIES)):
        try:
            return _bound(host, port)
        except OSError as e:
            if not left or e.errno != errno.EADDRINUSE:
                raise not_free(host, port, e) from e
    raise AssertionError


def not_free(host: str, port: int, cause: OSError) -> BadAddress:
    return BadAddress(f"cannot listen at {host}, port {port}: {cause.strerror or cause}")


def _bound(host: str, port: int) -> list[socket.socket]:
    made, missing = list[socket.socket](), None
    try:
        for family, kind, _, _, address in dict.fromkeys(socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)):
            try:
                made.append(_one(family, kind, address, port or _port(made)))
            except OSError as e:
                if e.errno not in _ELSEWHERE:
                    raise
                missing = e
    except OSError:
        for sock in made:
            sock.close()
        raise
    if not made and missing is not None:
        raise missing
    return made


def _one(family: int, kind: int, address: tuple[object, ...], port: int) -> socket.socket:
    sock = socket.socket(family, kind)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # IPv4 has a socket of its own
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address[0], port, *address[2:]))
    except OSError:
        sock.close()
        raise
    return sock


def _port(made: list[socket.socket]) -> int:
    return int(made[0].getsockname()[1]) if made else 0
