"""What the engine does, as Prometheus reads it. Names end as those of vLLM do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..engine.loop import Engine
from ..engine.stats import Histogram


def metrics_text(engine: Engine, model: str) -> str:
    labels = {"model_name": model}
    return "".join(f"{line}\n" for line in _lines(engine, labels))


def _lines(engine: Engine, labels: Mapping[str, str]) -> Iterator[str]:
    s = engine.stats
    gauges = {
        "num_requests_running": ("requests in the steps of the kernel", s.running),
        "num_requests_waiting": ("requests that wait for rows or pages",
                                 max(0, engine.open - s.running)),
        "kv_cache_usage_perc": ("part of the pages in use, 1 is all", s.cache_use),
    }
    counters = {
        "prompt_tokens": ("tokens of prompts", s.prompt_tokens),
        "generation_tokens": ("tokens of answers", s.tokens),
        "prefix_cache_hits": ("tokens of prompts that were in the cache", s.reused),
        "num_preemptions": ("requests that gave their pages back", s.preempted),
        "engine_steps": ("launches of the kernel", s.steps),
    }
    histograms = {
        "time_to_first_token_seconds": ("from arrival on", s.first_token),
        "time_per_output_token_seconds": ("after the token before", s.each_token),
        "e2e_request_latency_seconds": ("from arrival to the end", s.whole),
    }
    for name, (what, value) in gauges.items():
        yield from _one(name, "gauge", what, [(name, labels, value)])
    for name, (what, value) in counters.items():
        yield from _one(f"{name}_total", "counter", what, [(f"{name}_total", labels, value)])
    ends: list[Sample] = [
        ("request_success_total", {**labels, "finished_reason": str(f)}, float(n))
        for f, n in sorted(s.finished.items())]
    yield from _one("request_success_total", "counter", "requests by how they ended", ends)
    for name, (what, histogram) in histograms.items():
        yield from _one(name, "histogram", what, list(_buckets(name, labels, histogram)))


Sample = tuple[str, Mapping[str, str], float]


def _one(name: str, kind: str, what: str, samples: list[Sample]) -> Iterator[str]:
    yield f"# HELP eventtensor:{name} {what}"
    yield f"# TYPE eventtensor:{name} {kind}"
    for full, labels, value in samples:
        inside = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())
        yield f"eventtensor:{full}{{{inside}}} {value:.10g}"


def _buckets(name: str, labels: Mapping[str, str], h: Histogram) -> Iterator[Sample]:
    counts = h.counts
    for end, count in zip([*(f"{e:g}" for e in h.ends), "+Inf"], counts, strict=True):
        yield f"{name}_bucket", {**labels, "le": end}, count
    yield f"{name}_sum", labels, h.sum
    yield f"{name}_count", labels, counts[-1]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
