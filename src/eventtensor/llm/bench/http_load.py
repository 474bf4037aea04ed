"""A server under load over HTTP: each of so many clients sends its next request when it has the
answer of the one before. Measurements without HTTP are in in_process.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ...errors import EngineStopped
from .completion_client import Address, fetch_model, stream_completion
from .in_process import Workload
from .results import RequestTiming, Row, latency_rows, make_row, random_prompts

_LOW_VOCAB = 256  # a size that every vocabulary exceeds


def measure_http_load(
    at: Address, workload: Workload, client_counts: Sequence[int], requests: int, warm: int
) -> list[Row]:
    """For each number of clients: each sends `requests` requests after `warm` warm-up requests."""
    return [r for n in client_counts
            for r in asyncio.run(_measure_clients(at, workload, n, requests, warm))]


async def _measure_clients(
    at: Address, workload: Workload, clients: int, requests: int, warm: int
) -> list[Row]:
    model = (await fetch_model(at))["id"]
    timings, starts = list[RequestTiming](), list[float]()

    async def client(number: int) -> None:
        asked = random_prompts(warm + requests, workload.input_tokens, _LOW_VOCAB,
                               seed=1000 * clients + number)
        for k, tokens in enumerate(asked):
            if k == warm:
                starts.append(time.perf_counter())
            timing = await stream_completion(at, {
                "model": model, "prompt": tokens, "temperature": 0, "ignore_eos": True,
                "max_tokens": workload.output_tokens})
            if k >= warm:
                timings.append(timing)

    await asyncio.gather(*(client(n) for n in range(clients)))
    seconds = time.perf_counter() - min(starts)
    facts = {"model": model, "clients": clients, "input": workload.input_tokens,
             "output": workload.output_tokens}
    output_tokens = sum(t.num_tokens for t in timings)
    return [
        *latency_rows("serve", timings, **facts),
        make_row("serve_requests", [len(timings) / seconds], "requests/s", **facts),
        make_row("serve_output", [output_tokens / seconds], "tokens/s", **facts),
    ]


@contextmanager
def run_server(model: str, options: Sequence[str]) -> Iterator[Address]:
    """A server process of this installation, at a free port."""
    command = [sys.executable, "-m", "eventtensor.cli", "serve", model, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield _wait_until_ready(process)
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[str]) -> Address:
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if "ready at" in line:
            threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()  # read on
            return replace(Address.parse(line.split()[-1]), pid=process.pid)
    raise EngineStopped(f"the server has not started: {''.join(lines).strip()}")
