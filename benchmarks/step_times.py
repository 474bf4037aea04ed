"""Steps of a runner: those of an engine at work, by the stamps that each launch leaves, and bare
ones with the same rows, one after the other with nothing in between."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from eventtensor.bench.in_process import Load
from eventtensor.models.runner import Runner, StepToken

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


class Log:
    """The launches of a runner's kernels since `begin`, as far as their stamps are kept. There are
    none on threads."""

    def __init__(self, made: Runner) -> None:
        self._kernels = [] if made.target != "cuda" else [
            k.backend for k in made.kernels.all()]
        self.begin()

    def begin(self) -> None:
        self._after = [k.launched for k in self._kernels]

    def launches(self) -> list[Launch]:
        found = sorted((x for k, after in zip(self._kernels, self._after, strict=True)
                        for x in k.stamps(after)), key=lambda x: x.began)
        return [Launch(_rows(x.dims), (x.began - found[0].began) / 1e6,
                       (x.ended - found[0].began) / 1e6) for x in found]

    def pairs(self) -> list[tuple[Launch, Launch]]:
        """Launches that followed each other without a pause."""
        return [(a, b) for a, b in pairwise(self.launches()) if b.began - a.ended < IDLE_MS]


def _rows(dims: Mapping[str, int]) -> Rows | None:
    """A kernel for one row has neither dim."""
    return (dims.get("S", 1), dims.get("P", 0)) if dims else None


@dataclass
class Bare:
    """What steps take that are nothing but launches: of so many requests half way through their
    answers; rows beyond theirs are those of a prompt, which the last of them ends."""

    made: Runner
    load: Load
    log: Log
    known: dict[Rows, list[float]] = field(default_factory=dict)

    def times(self, rows: Rows) -> list[float]:
        """In ms."""
        if rows not in self.known:
            self.known[rows] = self._measured(*rows)
        return self.known[rows]

    def mean(self, weights: Mapping[Rows, float]) -> tuple[float, float]:
        """Of steps with these rows, in ms, and which part of the weight was measured. Steps that
        differ by little count as one kind."""
        kinds: dict[Rows, Counter[Rows]] = {}
        for rows, weight in weights.items():
            kinds.setdefault(_kind(rows), Counter())[rows] = weight
        most = sorted(kinds.values(), key=lambda k: -k.total())[:MOST_KINDS]
        each = [(k.total(), _mean(self.times(k.most_common(1)[0][0]))) for k in most]
        seen = sum(weight for weight, _ in each)
        return sum(w * ms for w, ms in each) / seen, seen / sum(weights.values())

    def _measured(self, chosen: int, more: int) -> list[float]:
        at, first = self.load.input + self.load.output // 2, max(0, (self.load.input - more) // 2)
        rows = [StepToken(r, 5, at) for r in range(chosen - 1)]
        rows += [StepToken(chosen - 1, 5, first + more if more else at)]
        rows += [StepToken(chosen - 1, 5, first + k) for k in range(more)]
        each = -(-(self.load.input + self.load.output) // self.made.page)
        tables = [list(range(r * each, (r + 1) * each)) for r in range(chosen)]
        self.log.begin()
        walls, buffers = list[float](), self.made.memory.num_buffers
        for k in range(WARM + STEPS + buffers - 1):
            began = time.perf_counter()
            if k < WARM + STEPS:
                self.made.launch(rows, tables, chosen)
            if k >= buffers - 1:
                self.made.result(0)
            walls.append(1e3 * (time.perf_counter() - began))
        stamped = [b.ended - a.ended for a, b in self.log.pairs()]
        return (stamped or walls)[WARM:]


def _kind(rows: Rows) -> Rows:
    chosen, more = rows
    return chosen if chosen < 4 else chosen // 4 * 4, -(-more // 16) * 16


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
