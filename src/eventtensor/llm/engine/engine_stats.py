"""Counts and histograms of an engine, and how fast its requests finish.

The engine's thread records; any thread may read. llm/serve/metrics.py gives the numbers the
names that Prometheus dashboards know."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence

from .request import FinishReason, Request
from .scheduler import Scheduler

_FIRST_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
            10.0, 20.0, 40.0, 80.0)
_EACH_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
           0.75, 1.0, 2.5)
_WHOLE_S = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
_SIZES = tuple(n * 10**k for k in range(6) for n in (1, 2, 5))  # in tokens
_MAX_FINISHES, _MIN_FINISHES = 128, 2  # that an estimate rests on
_MIN_BUSY_S = 0.25  # before an estimate without finished requests
_MAX_QUEUES = 4  # bounds an estimate, so that clients who retry often delay no others


class Histogram:
    """How many values are at most each of `bounds`, and their sum. The last count has all."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.sum, self._bin_counts = tuple(bounds), 0.0, [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self._bin_counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def counts(self) -> list[int]:
        total, out = 0, []
        for n in self._bin_counts:
            total += n
            out.append(total)
        return out


class FinishRate:
    """How fast requests finish: the last 128, or as many as have finished since the engine was
    idle."""

    def __init__(self) -> None:
        self._start_s = self._last_estimate_s = 0.0
        self._finish_times_s: deque[float] = deque(maxlen=_MAX_FINISHES)

    def start(self, now: float) -> None:
        """The engine was idle until now."""
        self._start_s = self._last_estimate_s = now
        self._finish_times_s.clear()

    def add_finish(self, now: float) -> None:
        self._finish_times_s.append(now)

    def estimate_wait_s(self, waiting: int, at_a_time: int, now: float) -> float | None:
        """Seconds until there is room for one more, behind the requests that wait and the clients
        that got an estimate before. None if it is too early to know."""
        each = self._mean_interval_s(at_a_time, now)
        if each is None:
            return None
        queue = waiting * each
        at = each + min(max(self._last_estimate_s, now + queue), now + _MAX_QUEUES * queue)
        self._last_estimate_s = at
        return at - now

    def _mean_interval_s(self, at_a_time: int, now: float) -> float | None:
        """Seconds from one finish to the next. Before requests have finished, the running ones
        count as half done."""
        count = len(self._finish_times_s)
        if count >= _MIN_FINISHES:
            start = self._start_s if count < _MAX_FINISHES else self._finish_times_s[0]
            return (now - start) / count
        busy = now - self._start_s
        return 2 * busy / at_a_time if busy >= _MIN_BUSY_S else None


class EngineStats:
    """All times are in seconds. `time_to_first_token` and `request_time` begin at the arrival of a
    request, `inter_token_time` at the token before. A request spends `queue_time` until its first
    step, `prefill_time` until its first token and `decode_time` until its last one;
    `inference_time` is the last two.

    A step shape is (tokens with a sampled successor, other tokens). `steps_of_shape` counts steps;
    `later_tokens_of_shape` counts the tokens that were not the first of their request.
    `cached_tokens` are tokens of prompts that were in the prefix cache. `num_undelivered_ends`
    counts last outputs whose sink failed."""

    def __init__(self) -> None:
        self.prompt_tokens = self.tokens = self.cached_tokens = self.num_undelivered_ends = 0
        self.num_steps = self.num_step_tokens = 0
        self.finished: Counter[FinishReason] = Counter()
        self.steps_of_shape: Counter[tuple[int, int]] = Counter()
        self.later_tokens_of_shape: Counter[tuple[int, int]] = Counter()
        self.time_to_first_token, self.inter_token_time = Histogram(_FIRST_S), Histogram(_EACH_S)
        self.request_time, self.queue_time, self.prefill_time = (
            Histogram(_WHOLE_S) for _ in range(3))
        self.decode_time, self.inference_time = Histogram(_WHOLE_S), Histogram(_WHOLE_S)
        self.prompt_sizes, self.answer_sizes = Histogram(_SIZES), Histogram(_SIZES)
        self.answer_limits = Histogram(_SIZES)
        self.num_running = self.num_waiting = self.num_preemptions = 0
        self.cache_usage = 0.0  # a share of the KV blocks
        self.finish_rate = FinishRate()

    def record_token(self, request: Request, now: float) -> None:
        if request.last_token_time_s:
            self.inter_token_time.add(now - request.last_token_time_s)
        else:
            request.first_token_time_s = now
            self.time_to_first_token.add(now - request.arrival_time_s)
            self.prompt_tokens += request.num_prompt_tokens
            self.cached_tokens += request.num_cached_tokens
        request.last_token_time_s = now
        self.tokens += request.params.max_tokens != 0

    def record_finish(self, request: Request, finish: FinishReason) -> None:
        now = time.monotonic()
        self.finished[finish] += 1
        self.request_time.add(now - request.arrival_time_s)
        self.answer_limits.add(request.max_len - request.num_prompt_tokens)
        if request.admission_time_s:
            self.queue_time.add(request.admission_time_s - request.arrival_time_s)
        if request.last_token_time_s:
            self.prefill_time.add(request.first_token_time_s - request.admission_time_s)
            self.decode_time.add(request.last_token_time_s - request.first_token_time_s)
            self.inference_time.add(request.last_token_time_s - request.admission_time_s)
            self.prompt_sizes.add(request.num_prompt_tokens)
            self.answer_sizes.add(len(request.answer_tokens))
        if finish in (FinishReason.stop, FinishReason.length):
            self.finish_rate.add_finish(now)

    def record_step(self, num_tokens: int, num_sampled: int, num_later_tokens: int) -> None:
        """A kernel samples a token for one row at least, even if the engine drops it."""
        self.num_steps += 1
        self.num_step_tokens += num_tokens
        shape = max(1, num_sampled), num_tokens - max(1, num_sampled)
        self.steps_of_shape[shape] += 1
        self.later_tokens_of_shape[shape] += num_later_tokens

    def observe(self, scheduler: Scheduler) -> None:
        """Reads the present state of the scheduler."""
        self.num_running, self.num_waiting = len(scheduler.running), len(scheduler.waiting)
        self.num_preemptions = scheduler.num_preemptions
        self.cache_usage = scheduler.blocks.num_used_blocks / scheduler.blocks.num_blocks
