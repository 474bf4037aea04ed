"""How long a queue will take, by the requests that have ended."""

from __future__ import annotations

import threading

import pytest

from eventtensor.errors import QueueFull
from eventtensor.llm.engine.engine_stats import _MAX_FINISHES, FinishRate
from eventtensor.llm.engine.sampling_params import SamplingParams
from tests.engine.fake_runner import FakeRunner, engine, limits

ASKED = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)


def test_a_queue_takes_as_long_as_the_requests_before_it():
    rate = FinishRate()
    rate.start(100.0)
    rate.add_finish(102.0)
    rate.add_finish(104.0)
    assert rate.estimate_wait_s(10, 4, 104.0) == pytest.approx(20 + 2)
    assert FinishRate().estimate_wait_s(10, 4, 0.1) is None


def test_while_none_has_ended_those_that_run_are_taken_to_be_half_way():
    rate = FinishRate()
    rate.start(100.0)
    assert rate.estimate_wait_s(12, 4, 100.1) is None
    assert rate.estimate_wait_s(12, 4, 101.0) == pytest.approx(3 * 2 + 0.5)


def test_those_who_are_told_to_come_again_come_one_by_one():
    rate = FinishRate()
    rate.start(0.0)
    rate.add_finish(1.0)
    rate.add_finish(2.0)
    assert [rate.estimate_wait_s(3, 1, 2.0) for _ in range(3)] == pytest.approx([4.0, 5.0, 6.0])
    most = [rate.estimate_wait_s(3, 1, 20.0) for _ in range(1000)]
    assert max(most) == pytest.approx(10 * (4 * 3 + 1))


def test_only_the_last_ends_count_and_none_before_a_rest():
    rate = FinishRate()
    rate.start(0.0)
    for k in range(_MAX_FINISHES):
        rate.add_finish(1000.0 + k / 10)
    assert rate.estimate_wait_s(5, 4, 1000.0 + _MAX_FINISHES / 10) == pytest.approx(0.6)
    rate.start(5000.0)
    assert rate.estimate_wait_s(5, 4, 5000.1) is None


def test_a_full_queue_says_how_long_it_will_take_once_some_have_ended():
    gate = threading.Event()

    def before(launch):
        if launch > 6:
            assert gate.wait(60)

    with engine(lambda: FakeRunner(limits(requests=1), before), max_waiting=4) as made:
        heard = threading.Semaphore(0)

        def sink(output):
            if output.finish is not None:
                heard.release()

        for _ in range(5):
            made.submit([3, 4], ASKED, sink)
        for _ in range(3):
            heard.acquire(timeout=60)
        for _ in range(3):
            made.submit([3, 4], ASKED, sink)
        with pytest.raises(QueueFull) as found:
            made.submit([3, 4], ASKED, sink)
        gate.set()
        assert type(found.value.retry_s) is int and found.value.retry_s >= 1
