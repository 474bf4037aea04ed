"""A server under load: so many clients, each of which asks again when it has its answer."""

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

from ..errors import EngineStopped
from .client import Address, models, stream
from .in_process import Load
from .results import Row, Span, prompts, row, times

_LOW_VOCAB = 256  # every model has so many tokens


def under_load(at: Address, load: Load, clients: Sequence[int], each: int, warm: int) -> list[Row]:
    """For each number of clients, `each` requests a client after `warm` that do not count."""
    return [r for n in clients for r in asyncio.run(_measured(at, load, n, each, warm))]


async def _measured(at: Address, load: Load, clients: int, each: int, warm: int) -> list[Row]:
    model = (await models(at))["id"]
    spans, kept = list[Span](), list[float]()

    async def client(number: int) -> None:
        asked = prompts(warm + each, load.input, _LOW_VOCAB, seed=1000 * clients + number)
        for k, tokens in enumerate(asked):
            if k == warm:
                kept.append(time.perf_counter())
            span = await stream(at, {"model": model, "prompt": tokens, "temperature": 0,
                                     "max_tokens": load.output, "ignore_eos": True})
            if k >= warm:
                spans.append(span)

    await asyncio.gather(*(client(n) for n in range(clients)))
    took = time.perf_counter() - min(kept)
    facts = {"model": model, "clients": clients, "input": load.input, "output": load.output}
    return [
        *times("serve", spans, **facts),
        row("serve_requests", [len(spans) / took], "requests/s", **facts),
        row("serve_output", [sum(s.tokens for s in spans) / took], "tokens/s", **facts),
    ]


@contextmanager
def server(model: str, options: Sequence[str]) -> Iterator[Address]:
    """A server process of this very installation, at a port that is free."""
    command = [sys.executable, "-m", "eventtensor.cli", "serve", model, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield _found(process)
    finally:
        process.terminate()
        process.wait()


def _found(process: subprocess.Popen[str]) -> Address:
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if "ready at" in line:
            threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()  # read on
            return replace(Address.of(line.split()[-1]), pid=process.pid)
    raise EngineStopped(f"the server has not started: {''.join(said).strip()}")
