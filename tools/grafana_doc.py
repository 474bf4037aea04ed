"""Prints docs/grafana.json: a dashboard for the metrics of a server."""

from __future__ import annotations

import json
from typing import Any

LABELS = '{model_name="$model_name"}'
WIDTH, HEIGHT = 8, 8
SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
QUANTILES = (0.5, 0.9, 0.99)


def value(name: str) -> str:
    return f"sum(${{prefix}}:{name}{LABELS})"


def rate(name: str, by: str = "") -> str:
    return f"sum{by} (rate(${{prefix}}:{name}{LABELS}[$__rate_interval]))"


def quantiles(name: str) -> dict[str, str]:
    found = {f"p{q * 100:g}": f"histogram_quantile({q}, {rate(f'{name}_bucket', ' by(le)')})"
             for q in QUANTILES}
    return found | {"mean": f"{rate(f'{name}_sum')} / {rate(f'{name}_count')}"}


# Title, unit, kind of panel, queries by legend.
PANELS: list[tuple[str, str, str, dict[str, str]]] = [
    ("Time to first token", "s", "timeseries", quantiles("time_to_first_token_seconds")),
    ("Time between tokens", "s", "timeseries", quantiles("inter_token_latency_seconds")),
    ("Time of a request", "s", "timeseries", quantiles("e2e_request_latency_seconds")),
    ("Tokens per second", "none", "timeseries", {
        "prompts": rate("prompt_tokens_total"), "answers": rate("generation_tokens_total")}),
    ("Requests", "none", "timeseries", {
        "running": value("num_requests_running"), "waiting": value("num_requests_waiting")}),
    ("Memory of the cache", "percentunit", "timeseries", {
        "used": f"max(${{prefix}}:kv_cache_usage_perc{LABELS})"}),
    ("Prefix cache: tokens found", "percentunit", "timeseries", {
        "found": f"{rate('prefix_cache_hits_total')} / {rate('prefix_cache_queries_total')}"}),
    ("Where the time goes", "s", "timeseries", {
        part: f"{rate(f'request_{part}_time_seconds_sum')} / "
              f"{rate(f'request_{part}_time_seconds_count')}"
        for part in ("queue", "prefill", "decode")}),
    ("Ends of requests per second", "none", "timeseries", {
        "{{finished_reason}}": rate("request_success_total", " by(finished_reason)")}),
    ("Answers per second by status", "none", "timeseries", {
        "{{status}}": rate("http_responses_total", " by(status)")}),
    ("Tokens of prompts", "none", "heatmap", {
        "{{le}}": rate("request_prompt_tokens_bucket", " by(le)")}),
    ("Tokens of answers", "none", "heatmap", {
        "{{le}}": rate("request_generation_tokens_bucket", " by(le)")}),
]


def panel(number: int) -> dict[str, Any]:
    title, unit, kind, queries = PANELS[number]
    format = "heatmap" if kind == "heatmap" else "time_series"
    return {
        "id": number + 1, "title": title, "type": kind, "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": number % 3 * WIDTH, "y": number // 3 * HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + k), "datasource": SOURCE, "expr": query,
                     "legendFormat": legend, "format": format}
                    for k, (legend, query) in enumerate(queries.items())]}


def dashboard() -> dict[str, Any]:
    models = "label_values(${prefix}:num_requests_running, model_name)"
    return {
        "title": "eventtensor", "uid": "eventtensor", "schemaVersion": 39, "version": 1,
        "refresh": "10s", "time": {"from": "now-30m", "to": "now"}, "editable": True,
        "templating": {"list": [
            {"name": "DS_PROMETHEUS", "type": "datasource", "query": "prometheus",
             "label": "Source"},
            {"name": "prefix", "type": "textbox", "query": "eventtensor", "label": "Prefix",
             "current": {"text": "eventtensor", "value": "eventtensor"}},
            {"name": "model_name", "type": "query", "datasource": SOURCE, "query": models,
             "definition": models, "refresh": 2, "label": "Model"},
        ]},
        "panels": [panel(number) for number in range(len(PANELS))],
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))
