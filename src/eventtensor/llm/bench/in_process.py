"""Latency and throughput of the engine in this process, without HTTP and without text."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ..engine.llm import LLM
from ..engine.request import Output
from ..engine.sampling_params import SamplingParams
from .results import RequestTiming, Row, latency_rows, make_row, random_prompts


@dataclass(frozen=True)
class Workload:
    """Requests of `input_tokens` tokens, each with an answer of `output_tokens` tokens. Sampling is
    greedy."""

    input_tokens: int = 512
    output_tokens: int = 128

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=self.output_tokens, ignore_eos=True)


def measure_latency(llm: LLM, workload: Workload, batch: int, runs: int, warm: int) -> list[Row]:
    """Runs `batch` requests at a time, `runs` times after `warm` warm-up runs."""
    timings = []
    for k in range(warm + runs):
        found = _run_requests(llm, workload, batch, seed=1000 * batch + k)
        if k >= warm:
            timings += found
    facts = {"model": llm.model.name, "target": llm.target, "batch": batch,
             "input": workload.input_tokens, "output": workload.output_tokens}
    return latency_rows("latency", timings, **facts)


def measure_throughput(
    llm: LLM, workload: Workload, requests: int, runs: int, warm: int
) -> list[Row]:
    """Sends all requests at once; gives requests and tokens a second."""
    seconds = []
    for k in range(warm + runs):
        start = time.perf_counter()
        _run_requests(llm, workload, requests, seed=k)
        if k >= warm:
            seconds.append(time.perf_counter() - start)
    facts = {"model": llm.model.name, "target": llm.target, "requests": requests,
             "input": workload.input_tokens, "output": workload.output_tokens}
    sizes = {"requests": 1, "output": workload.output_tokens,
             "total": workload.input_tokens + workload.output_tokens}
    return [make_row(f"throughput_{what}", [requests * size / t for t in seconds],
                     "requests/s" if what == "requests" else "tokens/s", **facts)
            for what, size in sizes.items()]


def _run_requests(llm: LLM, workload: Workload, count: int, seed: int) -> list[RequestTiming]:
    asked = random_prompts(count, workload.input_tokens, llm.model.config.vocab, seed)
    sent_at, sinks = time.perf_counter(), [_TimingSink() for _ in asked]
    for tokens, sink in zip(asked, sinks, strict=True):
        llm.engine.submit(tokens, workload.params, sink)
    return [RequestTiming(sent_at, s.wait(), workload.output_tokens) for s in sinks]


class _TimingSink:
    """A sink that notes when each output arrives."""

    def __init__(self) -> None:
        self._arrivals, self._done = list[float](), threading.Event()
        self._error: Exception | None = None

    def __call__(self, output: Output) -> None:
        self._arrivals.append(time.perf_counter())
        if output.finish is not None:
            self._error = output.error
            self._done.set()

    def wait(self) -> list[float]:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._arrivals
