"""A server process that all pytest workers of one run share."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.client_environment import locked
from tests.serve.server_process import running


@contextmanager
def shared(command: list[str], name: str, folder: Path) -> Iterator[str]:
    """The address. The first worker starts the server, and ends it after the last use."""
    start, address, users = (folder / f"{name}.{what}" for what in ("start", "url", "users"))
    with users.open("w") as use:
        with locked(start):
            server = None if address.exists() else running(command)
            if server is not None:
                address.write_text(server.__enter__().url)
            url = address.read_text()
            fcntl.flock(use, fcntl.LOCK_SH)
        try:
            yield url
        finally:
            fcntl.flock(use, fcntl.LOCK_UN)
            while server is not None:
                with locked(start):
                    if _nobody_has(users):
                        address.unlink()
                        server.__exit__(None, None, None)
                        server = None
                time.sleep(0.1)


def _nobody_has(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
