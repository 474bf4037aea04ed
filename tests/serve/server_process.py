"""Starts server processes for tests, finds the address that they print, and ends them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from tests.support.child_process import child_environment

_MAX_START_S = 600.0  # a busy machine compiles slowly; a server that exits is seen at once


class Server:
    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, env=child_environment(), stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready.wait(_MAX_START_S)
        found = re.search(r"ready at (http://\S+)/v1", "".join(self.log))
        assert found, "".join(self.log)
        self.url = found[1]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if "ready at" in line:
                self._ready.set()
        self._ready.set()

    def client(self, key: str = "none") -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics").text
        return float(re.search(rf"^eventtensor:{name}{{.*}} (\S+)$", text, re.MULTILINE)[1])

    def wait_for(self, name: str, value: float) -> None:
        """Waits until a metric has this value."""
        for _ in range(1000):
            if self.metric(name) == value:
                return
            time.sleep(0.02)
        raise AssertionError(f"{name} is {self.metric(name)}, not {value}")

    def at_rest(self) -> None:
        """Waits until no request runs or waits and no page is in use."""
        for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
            self.wait_for(name, 0)

    def exit_status(self) -> int:
        status = self.process.wait(60)
        self._reader.join(10)
        return status


@contextmanager
def running(command: list[str]) -> Iterator[Server]:
    server = Server(command)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def fake(folder: Path, **options: Any) -> Any:
    module = "tests.serve.fake_server"
    return running([sys.executable, "-m", module, str(folder), json.dumps(options)])
