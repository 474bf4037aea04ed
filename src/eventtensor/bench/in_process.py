"""Latency and throughput of the engine in this process: no HTTP, no text."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ..engine.llm import LLM
from ..engine.request import Output
from ..engine.sampling_params import SamplingParams
from .results import Row, Span, prompts, row, times


@dataclass(frozen=True)
class Load:
    """Requests of `input` tokens that get `output` tokens each, the likeliest ones."""

    input: int = 512
    output: int = 128

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=self.output, ignore_eos=True)


def latency(llm: LLM, load: Load, batch: int, runs: int, warm: int) -> list[Row]:
    """`batch` requests at a time, `runs` times after `warm` that do not count."""
    spans = []
    for k in range(warm + runs):
        found = _together(llm, load, batch, seed=1000 * batch + k)
        if k >= warm:
            spans += found
    facts = {"model": llm.model.name, "target": llm.target, "batch": batch, "input": load.input,
             "output": load.output}
    return times("latency", spans, **facts)


def throughput(llm: LLM, load: Load, requests: int, runs: int, warm: int) -> list[Row]:
    """All requests at once; how many a second, and how many tokens."""
    took = []
    for k in range(warm + runs):
        began = time.perf_counter()
        _together(llm, load, requests, seed=k)
        if k >= warm:
            took.append(time.perf_counter() - began)
    facts = {"model": llm.model.name, "target": llm.target, "requests": requests,
             "input": load.input, "output": load.output}
    sizes = {"requests": 1, "output": load.output, "total": load.input + load.output}
    return [row(f"throughput_{what}", [requests * size / t for t in took],
                "requests/s" if what == "requests" else "tokens/s", **facts)
            for what, size in sizes.items()]


def _together(llm: LLM, load: Load, count: int, seed: int) -> list[Span]:
    asked = prompts(count, load.input, llm.model.config.vocab, seed)
    sent, heard = time.perf_counter(), [_Heard() for _ in asked]
    for tokens, one in zip(asked, heard, strict=True):
        llm.engine.submit(tokens, load.params, one)
    return [Span(sent, one.wait(), load.output) for one in heard]


class _Heard:
    """A sink that looks at the clock."""

    def __init__(self) -> None:
        self._came, self._over = list[float](), threading.Event()
        self._error: Exception | None = None

    def __call__(self, output: Output) -> None:
        self._came.append(time.perf_counter())
        if output.finish is not None:
            self._error = output.error
            self._over.set()

    def wait(self) -> list[float]:
        self._over.wait()
        if self._error is not None:
            raise self._error
        return self._came
