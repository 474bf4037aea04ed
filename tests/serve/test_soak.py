"""A short soak test: mixed clients, fuzzed requests, and schemathesis on the OpenAPI description.

benchmarks/soak.py runs longer."""

from __future__ import annotations

import asyncio
import sys

import httpx
import pytest

from benchmarks import fuzz_requests, soak
from eventtensor.llm.bench.completion_client import Address
from tests.serve.server_process import fake, running


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, max_num_seqs=6, max_waiting=6, pages=34, step_s=0.001) as made:
        yield made


def test_mixed_clients_get_whole_answers_or_refusals_and_leave_nothing_behind(server):
    at = Address.parse(server.url)
    seen = asyncio.run(soak.soak(at, "tiny", requests=200, clients=24, tokens=40, seed=3))
    assert not seen.wrong and seen.ends["200"] > 20
    assert seen.ends["429"] and seen.ends["left while asking"] and seen.ends["left while answered"]
    assert asyncio.run(soak.wait_until_idle(at))
    assert server.metric("num_preemptions_total") > 0


def test_a_malformed_request_is_refused_and_the_next_request_answered(server):
    at = Address.parse(server.url)
    seen = asyncio.run(fuzz_requests.fuzz(at, "tiny", count=150, seed=4, wait_s=0.1))
    assert not seen.wrong and seen.ends["400"] > 50
    assert asyncio.run(soak.wait_until_idle(at))


@pytest.mark.full
def test_what_a_description_leads_to_is_answered_or_refused(folder):
    """A server with real kernels."""
    openapi_fuzz = pytest.importorskip("openapi_fuzz", reason="schemathesis is not installed")
    command = [sys.executable, "-m", "eventtensor.cli", "serve", str(folder), "--port", "0",
               "--target", "cpu", "--max-model-len", "64", "--max-num-seqs", "4",
               "--served-model-name", "tiny"]
    with running(command) as server:
        at = Address.parse(server.url)
        seen = openapi_fuzz.fuzz_openapi(at, "tiny", count=120)
        refusals = {"400", "404", "405", "413", "415", "429"}
        assert not seen.wrong and set(seen.ends) <= {"200"} | refusals
        assert seen.ends["200"] > 15 and seen.ends["400"] > 40
        assert asyncio.run(soak.wait_until_idle(at))


def test_the_description_names_all_that_is_served(server):
    told = httpx.get(f"{server.url}/openapi.json").json()
    for path, ways in told["paths"].items():
        for way in ways:
            asked = {"model": "tiny", "input": "hello", "max_output_tokens": 1}
            stored = httpx.post(f"{server.url}/v1/responses", json=asked).json()["id"]
            answer = httpx.request(way, server.url + path.format(name="tiny", id=stored))
            assert answer.status_code == (415 if way == "post" else 200), (way, path)
    assert told["paths"]["/v1/responses/{id}"].keys() == {"get", "delete"}
    names = told["components"]["schemas"]
    assert names["ChatBody"]["properties"]["model"] == {"enum": ["tiny"]}
    assert names["CompletionBody"]["additionalProperties"] is False
