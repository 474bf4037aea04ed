"""`eventtensor bench`: what it measures comes out as rows, and what it cannot do as an error."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from typer.testing import CliRunner

from eventtensor.errors import EngineStopped, StepFailed
from eventtensor.llm.bench import startup as startup_module
from eventtensor.llm.bench.completion_client import Address, stream_completion
from eventtensor.llm.bench.results import RequestTiming, make_row, random_prompts
from eventtensor.llm.cli import commands
from tests.engine.tiny_chat import write_tiny_chat
from tests.serve.server_process import fake

TINY = ("random:tiny-llama", "--target", "cpu", "--dtype", "f32", "--cache-gb", "0.1")


def bench(*words, out):
    done = CliRunner().invoke(commands.app, ["bench", *words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    return {r["name"]: r for r in json.loads(out.read_text())}


def test_a_row_has_mean_median_and_percentiles():
    found = make_row("x", list(range(101)), "ms", batch=3)
    assert found == {"name": "x", "batch": 3, "mean": 50, "median": 50, "p10": 10, "p90": 90,
                     "p99": 99, "samples": 101, "unit": "ms"}
    assert make_row("x", [], "ms") == {"name": "x", "samples": 0, "unit": "ms"}


def test_times_count_from_when_a_request_was_sent():
    timing = RequestTiming(10.0, [10.5, 10.6, 10.9], num_tokens=5)
    assert timing.to_first_s == 0.5 and timing.to_last_s == pytest.approx(0.9)
    assert timing.per_token_s == pytest.approx(0.1)
    assert timing.gaps_s == pytest.approx([0.1, 0.3])


def test_prompts_do_not_begin_alike():
    asked = random_prompts(50, 64, 256)
    assert len({tuple(p) for p in asked}) == 50 and {len(p) for p in asked} == {64}


@pytest.mark.full
def test_latency_and_throughput_are_measured_in_the_process(tmp_path):
    out = tmp_path / "rows.json"
    rows = bench("latency", *TINY, "--batch", "3", "--input", "20", "--output", "5", "--runs", "2",
                 out=out)
    assert {k: r["samples"] for k, r in rows.items()} == {
        "latency_ttft": 6, "latency_tpot": 6, "latency_itl": 24, "latency_e2e": 6}
    assert rows["latency_ttft"]["median"] <= rows["latency_e2e"]["median"]
    assert rows["latency_e2e"]["batch"] == 3 and "gpu" in rows["latency_e2e"]
    rows = bench("throughput", *TINY, "--requests", "6", "--input", "20", "--output", "5", out=out)
    total, output = rows["throughput_total"]["median"], rows["throughput_output"]["median"]
    assert total == pytest.approx(5 * output, rel=1e-3)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = write_tiny_chat(tmp_path_factory.mktemp("tiny") / "model")
    with fake(folder, max_num_seqs=4, max_waiting=0) as made:
        yield made


def test_a_server_is_measured_under_load(server, tmp_path):
    rows = bench("serve", "--url", server.url, "--clients", "1,3", "--requests", "2", "--input",
                 "30", "--output", "6", out=tmp_path / "rows.json")
    assert rows["serve_ttft"]["clients"] == 3 and rows["serve_ttft"]["samples"] == 6
    output, requests = (rows[f"serve_{k}"]["median"] for k in ("output", "requests"))
    assert output == pytest.approx(6 * requests, rel=1e-3)
    assert rows["serve_tpot"]["samples"] == 6
    server.at_rest()


def test_what_a_server_refuses_is_an_error(server):
    with pytest.raises(StepFailed, match=r"400.*max_tokens is 0"):
        asyncio.run(stream_completion(Address.parse(server.url), {"model": "tiny", "prompt": "x",
                                                    "max_tokens": 0}))
    done = CliRunner().invoke(commands.app, [
        "bench", "serve", "--url", server.url, "--clients", "9", "--input", "30"])
    assert done.exit_code == 1 and "ET505" in done.output and "429" in done.output


@pytest.mark.parametrize("words", [
    ("serve",), ("serve", "x", "--url", "http://y"), ("serve", "x", "--clients", "many"),
    ("latency", "nothing"), ("latency", *TINY, "--input", "2000"),
])
def test_what_cannot_be_measured_is_refused_in_words(words):
    done = CliRunner().invoke(commands.app, ["bench", *words])
    assert done.exit_code == 1 and "ET" in done.output and "hint" in done.output


def test_a_start_is_measured_in_a_process_of_its_own(monkeypatch):
    options = {"target": "cpu", "dtype": "f32", "max_model_len": 256}
    imported, weights, engine, ready, first = startup_module._run_child(
        "random:tiny-llama", options, os.environ["ET_CACHE_DIR"])
    assert 0 < imported < ready < first and imported + weights + engine == pytest.approx(ready)
    calls = iter([[1, 0, 0, 9, 10], [1, 0, 0, 2, 3], [1, 0, 0, 3, 4], [1, 0, 0, 1, 1],
                  [1, 0, 0, 1, 2]])
    monkeypatch.setattr(startup_module, "_run_child", lambda *_: next(calls))
    monkeypatch.setattr(startup_module, "_compile", lambda *_: None)
    rows = startup_module.measure_startup("m", options, runs=2)
    assert [(r["caches"], r["median"]) for r in rows if r["name"] == "startup_first_token"] == [
        ("cold", 10), ("warm", 3.5), ("artifact", 1.5)]


def test_what_does_not_start_is_an_error():
    with pytest.raises(EngineStopped, match="ET400"):
        startup_module._compile("nothing", {"target": "cpu"}, "/nowhere")
