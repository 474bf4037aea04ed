"""A little of what benchmarks/soak.py does for longer: mixed clients, and nonsense."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from serve.process import fake

from eventtensor.bench.client import Address

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import soak


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, max_running=6, max_waiting=6, pages=34, step_s=0.001) as made:
        yield made


def test_mixed_clients_get_whole_answers_or_refusals_and_leave_nothing_behind(server):
    at = Address.of(server.url)
    seen = asyncio.run(soak.soak(at, "tiny", requests=200, clients=24, tokens=40, seed=3))
    assert not seen.wrong and seen.ends["200"] > 20
    assert seen.ends["429"] and seen.ends["left while asking"] and seen.ends["left while answered"]
    assert asyncio.run(soak.at_rest(at))
    assert server.metric("num_preemptions_total") > 0


def test_nonsense_is_refused_and_the_next_request_answered(server):
    at = Address.of(server.url)
    seen = asyncio.run(soak.fuzz(at, "tiny", count=150, seed=4, wait_s=0.1))
    assert not seen.wrong and seen.ends["400"] > 50
    assert asyncio.run(soak.at_rest(at))
