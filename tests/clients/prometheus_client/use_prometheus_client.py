"""The parser of the package of Prometheus."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

from features import MODEL, SCRIPTED, feature, main
from prometheus_client.parser import text_string_to_metric_families

HISTOGRAMS = (
    "time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
    "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
    "request_generation_tokens",
)  # fmt: skip


def families():
    with urlopen(f"{SCRIPTED}/metrics") as answer:
        text = answer.read().decode()
    return {f.name.split(":")[1]: f for f in text_string_to_metric_families(text)}


def ask():
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Bob is 30."}]}
    head = {"Content-Type": "application/json"}
    with urlopen(Request(f"{SCRIPTED}/v1/chat/completions", json.dumps(body).encode(), head)) as a:
        return json.load(a)


@feature("counters and gauges")
def _():
    before, answer, after = families(), ask(), families()
    told = {"prompt_tokens": "prompt_tokens", "generation_tokens": "completion_tokens"}
    for name, what in told.items():
        grown = after[name].samples[0].value - before[name].samples[0].value
        assert grown >= answer["usage"][what], name
    assert {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"} <= after.keys()
    assert {"prefix_cache_hits", "prefix_cache_queries"} <= after.keys()


@feature("histograms")
def _():
    ask()
    found = families()
    for name in HISTOGRAMS:
        kinds = {s.name.rsplit("_", 1)[1] for s in found[name].samples}
        assert found[name].type == "histogram" and kinds == {"bucket", "sum", "count"}, name
        count = next(s.value for s in found[name].samples if s.name.endswith("_count"))
        assert count >= 1, name


main()
