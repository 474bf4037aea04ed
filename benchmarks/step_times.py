"""Times of the steps of a runner, by the time stamps of each launch: the steps of a busy engine,
and bare steps with the same rows, one after the other with nothing in between."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from eventtensor.llm.bench.in_process import Workload
from eventtensor.llm.runner.runner import Runner, StepToken

Rows = tuple[int, int]  # of a step: those that get a token, and those that only fill the cache
STEPS = 8  # bare ones of a kind that count, after WARM
WARM = 3
MOST_KINDS = 16  # of steps that bare ones are measured for
IDLE_MS = 0.3  # beyond it a gap between launches is one without work


class Launch(NamedTuple):
    """In ms of the GPU's clock. `rows` is None where its binding is gone."""

    rows: Rows | None
    began: float
    ended: float


class LaunchLog:
    """The launches of a runner's kernels since `begin`, as far as their time stamps are kept. On a
    CPU there are none."""

    def __init__(self, runner: Runner) -> None:
        self._kernels = [] if runner.target != "cuda" else [
            k.backend for k in runner.kernels.all()]
        self.begin()

    def begin(self) -> None:
        self._after = [k.launched for k in self._kernels]

    def launches(self) -> list[Launch]:
        found = sorted((x for k, after in zip(self._kernels, self._after, strict=True)
                        for x in k.stamps(after)), key=lambda x: x.began)
        return [Launch(_rows(x.dims), (x.began - found[0].began) / 1e6,
                       (x.ended - found[0].began) / 1e6) for x in found]

    def pairs(self) -> list[tuple[Launch, Launch]]:
        """Launches that follow each other without a pause."""
        return [(a, b) for a, b in pairwise(self.launches()) if b.began - a.ended < IDLE_MS]


def _rows(dims: Mapping[str, int]) -> Rows | None:
    """A kernel for one row has neither dim."""
    return (dims.get("S", 1), dims.get("P", 0)) if dims else None


@dataclass
class BareSteps:
    """Times of steps that are nothing but launches. Each request is half way through its answer;
    other rows are those of a prompt, which the last row ends."""

    runner: Runner
    workload: Workload
    log: LaunchLog
    times_of_rows: dict[Rows, list[float]] = field(default_factory=dict)

    def times(self, rows: Rows) -> list[float]:
        """In ms."""
        if rows not in self.times_of_rows:
            self.times_of_rows[rows] = self._measure(*rows)
        return self.times_of_rows[rows]

    def mean(self, weights: Mapping[Rows, float]) -> tuple[float, float]:
        """The weighted mean time of steps with these rows, in ms, and the part of the weight that
        was measured. Steps whose rows differ by little count as one kind."""
        kinds: dict[Rows, Counter[Rows]] = {}
        for rows, weight in weights.items():
            kinds.setdefault(_kind(rows), Counter())[rows] = weight
        most = sorted(kinds.values(), key=lambda k: -k.total())[:MOST_KINDS]
        each = [(k.total(), _mean(self.times(k.most_common(1)[0][0]))) for k in most]
        seen = sum(weight for weight, _ in each)
        return sum(w * ms for w, ms in each) / seen, seen / sum(weights.values())

    def _measure(self, chosen: int, more: int) -> list[float]:
        work = self.workload
        at = work.input_tokens + work.output_tokens // 2
        first = max(0, (work.input_tokens - more) // 2)
        rows = [StepToken(r, 5, at) for r in range(chosen - 1)]
        rows += [StepToken(chosen - 1, 5, first + more if more else at)]
        rows += [StepToken(chosen - 1, 5, first + k) for k in range(more)]
        each = -(-(work.input_tokens + work.output_tokens) // self.runner.page)
        tables = [list(range(r * each, (r + 1) * each)) for r in range(chosen)]
        self.log.begin()
        walls, buffers = list[float](), self.runner.memory.num_buffers
        for k in range(WARM + STEPS + buffers - 1):
            began = time.perf_counter()
            if k < WARM + STEPS:
                self.runner.launch(rows, tables, chosen)
            if k >= buffers - 1:
                self.runner.result(0)
            walls.append(1e3 * (time.perf_counter() - began))
        stamped = [b.ended - a.ended for a, b in self.log.pairs()]
        return (stamped or walls)[WARM:]


def _kind(rows: Rows) -> Rows:
    chosen, more = rows
    return chosen if chosen < 4 else chosen // 4 * 4, -(-more // 16) * 16


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
