"""A server in this process, and clients in another one. So a benchmark can compare what the clients
measure with what the engine counted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from eventtensor import LLM
from eventtensor.llm.bench.in_process import Workload
from eventtensor.llm.bench.results import Row
from eventtensor.llm.serve.app import AppOptions, make_app
from eventtensor.llm.serve.watchdog import Watchdog

_SWITCH_INTERVAL_S = 2e-4  # as in `eventtensor serve`


@contextmanager
def serve_in_process(llm: LLM) -> Iterator[str]:
    """The URL of a server of this model."""
    watch = Watchdog(llm.engine, _give_up, 60.0)
    app = make_app(llm, AppOptions(llm.model.name), watch, Counter())
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="on", log_level="error",
                                           access_log=False))
    before, thread = sys.getswitchinterval(), threading.Thread(
        target=lambda: asyncio.run(server.serve()), name="server", daemon=True)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        sys.setswitchinterval(before)


def _give_up(reason: str, stuck: bool) -> None:
    sys.exit(f"{reason} (stuck: {stuck})")


def run_clients(url: str, clients: int, workload: Workload, each: int) -> list[Row]:
    """The rows that so many clients measure, each with `each` requests after a warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "eventtensor.cli", "bench", "serve", "--url", url,
                   "--clients", str(clients), "--requests", str(each),
                   "--input", str(workload.input_tokens), "--output", str(workload.output_tokens),
                   "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the clients have failed: {done.stdout}{done.stderr}")
        rows: list[Row] = json.loads(out.read_text())
    return rows
