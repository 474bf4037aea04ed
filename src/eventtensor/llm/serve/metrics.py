"""Prints the engine's counters for Prometheus, under vLLM's metric names.

The engine counts (`llm/engine`); this module only formats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import BadOption
from ..engine.engine_core import EngineCore
from ..engine.engine_stats import Histogram
from ..engine.request import FinishReason

_ENDS: Mapping[FinishReason, str] = {FinishReason.cancelled: "abort"}  # vLLM's name
_PREFIX = re.compile("[a-zA-Z_][a-zA-Z0-9_]{0,63}")
# Older names of vLLM, which dashboards still use.
_OLD_NAMES = {"inter_token_latency_seconds": "time_per_output_token_seconds",
              "kv_cache_usage_perc": "gpu_cache_usage_perc",
              "prefix_cache_queries": "gpu_prefix_cache_queries",
              "prefix_cache_hits": "gpu_prefix_cache_hits"}


def check_prefix(prefix: str) -> None:
    if not _PREFIX.fullmatch(prefix):
        raise BadOption(f"metrics-prefix is {prefix[:80]!r}", hint="letters, digits and _")


def metrics_text(
    engine: EngineCore, model: str, prefix: str = "eventtensor",
    statuses: Mapping[int, int] = Counter(),
) -> str:
    """`statuses` counts responses by status code. The label `engine` is always 0, as vLLM's
    dashboards expect."""
    labels = {"model_name": model, "engine": "0"}
    return "".join(f"{line}\n" for line in _lines(engine, labels, prefix, statuses))


Sample = tuple[str, Mapping[str, str], float]


def _lines(
    engine: EngineCore, labels: Mapping[str, str], prefix: str, statuses: Mapping[int, int]
) -> Iterator[str]:
    s = engine.stats
    gauges = {
        "num_requests_running": ("requests in the steps of the kernel", s.num_running),
        "num_requests_waiting": ("requests that wait for rows or pages",
                                 max(0, engine.num_open_requests - s.num_running)),
        "kv_cache_usage_perc": ("part of the pages in use, 1 is all", s.cache_usage),
    }
    counters = {
        "prompt_tokens": ("tokens of prompts", s.prompt_tokens),
        "generation_tokens": ("tokens of answers", s.tokens),
        "prefix_cache_queries": ("tokens of prompts that were looked for in the cache",
                                 s.prompt_tokens),
        "prefix_cache_hits": ("tokens of prompts that were in the cache", s.cached_tokens),
        "num_preemptions": ("requests that gave their pages back", s.num_preemptions),
        "engine_steps": ("launches of the kernel", s.num_steps),
    }
    histograms = {
        "time_to_first_token_seconds": ("from arrival on", s.time_to_first_token),
        "inter_token_latency_seconds": ("after the token before", s.inter_token_time),
        "e2e_request_latency_seconds": ("from arrival to the end", s.request_time),
        "request_queue_time_seconds": ("from arrival to the first step", s.queue_time),
        "request_prefill_time_seconds": ("from the first step to the first token", s.prefill_time),
        "request_decode_time_seconds": ("from the first token to the last", s.decode_time),
        "request_inference_time_seconds": ("from the first step to the last token",
                                           s.inference_time),
        "request_prompt_tokens": ("tokens of a prompt", s.prompt_sizes),
        "request_generation_tokens": ("tokens of an answer", s.answer_sizes),
        "request_max_num_generation_tokens": ("tokens of an answer", s.answer_sizes),
        "request_params_max_tokens": ("tokens that an answer might have", s.answer_limits),
    }

    def metric(name: str, kind: str, what: str, samples: list[Sample]) -> Iterator[str]:
        yield f"# HELP {prefix}:{name} {what}"
        yield f"# TYPE {prefix}:{name} {kind}"
        for sample, own_labels, value in samples:
            text = ",".join(f'{k}="{_escape(v)}"' for k, v in own_labels.items())
            yield f"{prefix}:{sample}{{{text}}} {value:.10g}"

    for name, (what, number) in gauges.items():
        for alias in _names(name):
            yield from metric(alias, "gauge", what, [(alias, labels, number)])
    for name, (what, number) in counters.items():
        for alias in _names(name):
            total = f"{alias}_total"
            yield from metric(total, "counter", what, [(total, labels, number)])
    ends = {_ENDS.get(finish, finish.value): s.finished[finish] for finish in FinishReason}
    labelled: tuple[tuple[str, str, str, Mapping[Any, int]], ...] = (
        ("request_success_total", "finished_reason", "requests by how they ended", ends),
        ("http_responses_total", "status", "answers by their status", statuses))
    for name, label, what, counts in labelled:
        counted: list[Sample] = [(name, {**labels, label: str(k)}, n) for k, n in counts.items()]
        yield from metric(name, "counter", what, counted)
    for name, (what, histogram) in histograms.items():
        for alias in _names(name):
            yield from metric(alias, "histogram", what, list(_buckets(alias, labels, histogram)))


def _names(name: str) -> tuple[str, ...]:
    return (name, _OLD_NAMES[name]) if name in _OLD_NAMES else (name,)


def _buckets(name: str, labels: Mapping[str, str], h: Histogram) -> Iterator[Sample]:
    counts = h.counts
    for end, count in zip([*(f"{e:g}" for e in h.bounds), "+Inf"], counts, strict=True):
        yield f"{name}_bucket", {**labels, "le": end}, count
    yield f"{name}_sum", labels, h.sum
    yield f"{name}_count", labels, counts[-1]


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
