"""Metrics under vLLM's names, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from eventtensor.errors import BadOption
from eventtensor.llm.engine.sampling_params import SamplingParams
from eventtensor.llm.serve.metrics import check_prefix, metrics_text
from tests.engine.fake_runner import FakeRunner, engine, limits
from tests.serve.server_process import fake
from tools import grafana_doc

ROOT = Path(__file__).parents[2]
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)')
# What the example dashboard of vLLM asks for.
DRAWN = {
    "e2e_request_latency_seconds_bucket", "e2e_request_latency_seconds_sum", "prompt_tokens_total",
    "generation_tokens_total", "time_per_output_token_seconds_bucket",
    "inter_token_latency_seconds_bucket", "num_requests_running", "num_requests_waiting",
    "time_to_first_token_seconds_bucket", "gpu_cache_usage_perc", "kv_cache_usage_perc",
    "request_prompt_tokens_bucket", "request_generation_tokens_bucket", "request_success_total",
    "request_queue_time_seconds_sum", "request_prefill_time_seconds_sum",
    "request_decode_time_seconds_sum", "request_max_num_generation_tokens_sum",
    "request_inference_time_seconds_count", "request_params_max_tokens_count",
    "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total",
}


def samples(text):
    """{(name, labels): value}; every line is a comment of its family, or a sample."""
    found, family = {}, ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match and match[1].startswith(family), line
            labels = tuple(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', match[2]))
            assert (match[1], labels) not in found, line
            found[match[1], labels] = float(match[3])
    return found


def sums(text):
    found = {}
    for (name, _), value in samples(text).items():
        found[name] = found.get(name, 0) + value
    return found


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, metrics_prefix="vllm", max_num_seqs=2, max_waiting=2, step_s=0.01) as made:
        yield made


def test_the_names_and_labels_are_those_of_vllm(server):
    asked = {"model": "tiny", "prompt": "abcdefgh" * 3, "max_tokens": 4, "ignore_eos": True}
    for _ in range(2):
        assert httpx.post(f"{server.url}/v1/completions", json=asked).status_code == 200
    text = httpx.get(f"{server.url}/metrics").text
    found = sums(text)
    assert {f"vllm:{name}" for name in DRAWN} <= found.keys()
    assert all(labels[:2] == (("model_name", "tiny"), ("engine", "0"))
               for _, labels in samples(text))
    assert found["vllm:request_prompt_tokens_sum"] == found["vllm:prompt_tokens_total"]
    assert found["vllm:request_generation_tokens_sum"] == 8
    assert found["vllm:request_params_max_tokens_sum"] == 8
    assert found["vllm:prefix_cache_queries_total"] > found["vllm:prefix_cache_hits_total"] > 0
    assert found["vllm:inter_token_latency_seconds_count"] == 6
    assert found["vllm:time_per_output_token_seconds_count"] == 6
    parts = [found[f"vllm:request_{part}_time_seconds_sum"]
             for part in ("queue", "prefill", "decode", "inference")]
    assert parts[1] + parts[2] == pytest.approx(parts[3]) and parts[2] >= 6 * 0.01
    assert sum(parts[:3]) <= found["vllm:e2e_request_latency_seconds_sum"] + 1e-6
    ends = {dict(labels)["finished_reason"]: value for (name, labels), value
            in samples(text).items() if name == "vllm:request_success_total"}
    assert ends == {"stop": 0, "length": 2, "abort": 0, "error": 0}


def test_answers_are_counted_by_status_also_those_of_connections(server):
    def counted():
        text = httpx.get(f"{server.url}/metrics").text
        return {dict(labels)["status"]: value for (name, labels), value in samples(text).items()
                if name == "vllm:http_responses_total"}

    before = counted()
    httpx.get(f"{server.url}/nothing")
    httpx.get(f"{server.url}/health", headers={"A": "a" * 70000})
    after = counted()
    assert after["404"] == before.get("404", 0) + 1
    assert after["431"] == before.get("431", 0) + 1


def test_a_request_that_is_given_up_in_the_queue_has_no_prefill():
    asked = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    with engine(lambda: FakeRunner(limits(requests=1))) as made:
        made.cancel(made.submit([3], asked, lambda output: None))
        made.close()
        found = sums(metrics_text(made, 'a "b"\\\n'))
    assert found["eventtensor:e2e_request_latency_seconds_count"] == 1
    assert found["eventtensor:request_decode_time_seconds_count"] in (0, 1)
    assert found["eventtensor:request_prompt_tokens_count"] == (
        found["eventtensor:request_prefill_time_seconds_count"])


@pytest.mark.parametrize("prefix", ["", "1a", "a-b", "a:b", "x" * 65])
def test_a_prefix_that_makes_no_name_is_refused(prefix):
    with pytest.raises(BadOption, match="metrics-prefix"):
        check_prefix(prefix)


def test_the_dashboard_asks_for_metrics_that_there_are():
    page = (ROOT / "docs" / "grafana.json").read_text()
    assert page == json.dumps(grafana_doc.dashboard(), indent=1) + "\n", "run make grafana"
    with engine() as made:
        known = {name for name, _ in samples(metrics_text(made, "tiny", "eventtensor", {200: 1}))}
    drawn = set()
    for panel in json.loads(page)["panels"]:
        assert panel["targets"] and panel["title"]
        for target in panel["targets"]:
            names = re.findall(r"\$\{prefix\}:(\w+)\{", target["expr"])
            assert names and target["expr"].count("(") == target["expr"].count(")")
            drawn.update(f"eventtensor:{name}" for name in names)
    assert drawn <= known and len(drawn) > 15
