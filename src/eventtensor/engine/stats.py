"""What an engine has done so far, as counts and histograms."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence

from .request import Finish, Request
from .scheduler import Scheduler

_FIRST_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
            10.0, 20.0, 40.0, 80.0)
_EACH_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
           0.75, 1.0, 2.5)
_WHOLE_S = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
_SIZES = tuple(n * 10**k for k in range(6) for n in (1, 2, 5))  # in tokens
_ENDS, _FEW_ENDS = 128, 2  # that tell how fast requests end, at most and at least
_FIRST_LOOK_S = 0.25  # of work, before it tells anything
_MOST_QUEUES = 4  # that are promised: who comes again and again makes it no longer for others


class Histogram:
    """How many values are at most each of `ends`, and their sum. The last count is of all."""

    def __init__(self, ends: Sequence[float]) -> None:
        self.ends, self.sum, self._in = tuple(ends), 0.0, [0] * (len(ends) + 1)

    def add(self, value: float) -> None:
        self._in[bisect_left(self.ends, value)] += 1
        self.sum += value

    @property
    def counts(self) -> list[int]:
        total, out = 0, []
        for n in self._in:
            total += n
            out.append(total)
        return out


class Pace:
    """How fast requests end: the last `_ENDS` of them, or as many as have since the engine had
    nothing to do."""

    def __init__(self) -> None:
        self._began = self._promised = 0.0
        self._ends: deque[float] = deque(maxlen=_ENDS)

    def begin(self, now: float) -> None:
        """The engine had nothing to do up to now."""
        self._began = self._promised = now
        self._ends.clear()

    def end(self, now: float) -> None:
        self._ends.append(now)

    def promise(self, waiting: int, at_a_time: int, now: float) -> float | None:
        """In how many seconds there is room for one more, behind those who wait and those who were
        told to come again. None if nobody knows yet."""
        each = self._each(at_a_time, now)
        if each is None:
            return None
        queue = waiting * each
        self._promised = each + min(max(self._promised, now + queue), now + _MOST_QUEUES * queue)
        return self._promised - now

    def _each(self, at_a_time: int, now: float) -> float | None:
        """Seconds from one end to the next. While hardly one has ended, those that run are taken to
        be half way."""
        count = len(self._ends)
        if count >= _FEW_ENDS:
            return (now - (self._began if count < _ENDS else self._ends[0])) / count
        busy = now - self._began
        return 2 * busy / at_a_time if busy >= _FIRST_LOOK_S else None


class Stats:
    """`first_token` from arrival on, `each_token` after the one before, `whole` from arrival to the
    end; `queue` to the first step, `prefill` from there to the first token, `decode` to the last,
    `inference` both. `reused`: tokens of prompts that were in the cache; `lost`: ends that nobody
    would hear. `mix`: how many steps had so many rows that the kernel chose a token for, and so
    many others; `told_in`: tokens that came after another one of the same request, by the rows of
    their steps."""

    def __init__(self) -> None:
        self.prompt_tokens = self.tokens = self.reused = self.steps = self.rows = self.lost = 0
        self.finished: Counter[Finish] = Counter()
        self.mix: Counter[tuple[int, int]] = Counter()
        self.told_in: Counter[tuple[int, int]] = Counter()
        self.first_token, self.each_token = Histogram(_FIRST_S), Histogram(_EACH_S)
        self.whole, self.queue, self.prefill = (Histogram(_WHOLE_S) for _ in range(3))
        self.decode, self.inference = Histogram(_WHOLE_S), Histogram(_WHOLE_S)
        self.prompt_sizes, self.answer_sizes = Histogram(_SIZES), Histogram(_SIZES)
        self.answer_limits = Histogram(_SIZES)
        self.running = self.waiting = self.preempted = 0
        self.cache_use = 0.0
        self.pace = Pace()

    def token(self, request: Request, now: float) -> None:
        if request.told:
            self.each_token.add(now - request.told)
        else:
            request.first_told = now
            self.first_token.add(now - request.arrived)
            self.prompt_tokens += request.prompt
            self.reused += request.reused
        request.told = now
        self.tokens += request.params.max_tokens != 0

    def finish(self, request: Request, finish: Finish) -> None:
        now = time.monotonic()
        self.finished[finish] += 1
        self.whole.add(now - request.arrived)
        self.answer_limits.add(request.last - request.prompt)
        if request.admitted:
            self.queue.add(request.admitted - request.arrived)
        if request.told:
            self.prefill.add(request.first_told - request.admitted)
            self.decode.add(request.told - request.first_told)
            self.inference.add(request.told - request.admitted)
            self.prompt_sizes.add(request.prompt)
            self.answer_sizes.add(len(request.answer))
        if finish in (Finish.stop, Finish.length):
            self.pace.end(now)

    def step(self, rows: int, chosen: int, going_on: int) -> None:
        """`going_on`: who got a token, and not the first one. A kernel chooses for one row at
        least."""
        self.steps += 1
        self.rows += rows
        kind = max(1, chosen), rows - max(1, chosen)
        self.mix[kind] += 1
        self.told_in[kind] += going_on

    def look(self, scheduler: Scheduler) -> None:
        """How it is now."""
        self.running, self.waiting = len(scheduler.running), len(scheduler.waiting)
        self.preempted = scheduler.preempted
        self.cache_use = scheduler.pages.used / scheduler.pages.count
