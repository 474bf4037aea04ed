"""A runner in plain Python whose next token hangs on every token before it, as it reads them from
the cache through the page tables: a wrong page, or one that was overwritten, gives other tokens."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from eventtensor.llm.engine.engine_core import EngineCore, EngineOptions
from eventtensor.llm.engine.sampling_params import SamplingParams
from eventtensor.llm.runner.batch_arrays import (
    BlockTables,
    RunnerLimits,
    StepToken,
    TokenChoice,
    chance,
    check_choices,
    check_counts,
)
from eventtensor.llm.runner.runner import MAX_STEPS_IN_FLIGHT, Result
from tests.engine.reference import choose, draw

VOCAB, PAGE, EOS = 40, 4, 1
NOTHING = -1


def limits(pages: int = 16, rows: int = 8, requests: int = 4, positions: int = 32) -> RunnerLimits:
    return RunnerLimits(VOCAB, rows, min(rows, requests), requests, positions, pages, PAGE, 2)


def logits_after(tokens: Sequence[int], vocab: int = VOCAB) -> np.ndarray:
    digest = hashlib.sha256(np.array(tokens, np.int32).tobytes()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    return (3 * rng.standard_normal(vocab)).astype(np.float32)


@dataclass
class FakeRunner:
    """`before`: called with the number of each launch, to fail it or to hold it up."""

    limits: RunnerLimits = field(default_factory=limits)
    before: Callable[[int], None] = lambda n: None
    target: str = "cpu"
    launches: int = 0
    ahead: int = 0  # launches before the result of the one before was fetched
    closed: bool = False

    def __post_init__(self) -> None:
        self.cache = np.full(self.limits.pages * self.limits.page, NOTHING)
        self._flat = np.zeros(self.limits.table, np.int32)
        self._tables = BlockTables(self.limits, self._flat)
        self.sizes: list[tuple[int, int]] = []  # rows and chosen of each step
        self._begun: deque[Result] = deque()
        self._changed = False  # logits, by the last launch
        self._tokens = np.zeros(0, np.int64)

    def launch(
        self, rows: Sequence[StepToken], tables: Sequence[Sequence[int]], chosen: int,
        choices: Sequence[TokenChoice],
    ) -> None:
        assert not self.closed and len(self._begun) < MAX_STEPS_IN_FLIGHT
        check_counts(self.limits, len(rows), chosen)
        check_choices(choices, chosen)
        changed = any(c.change is not None for c in choices)
        assert not (changed and self._changed and self._begun), "changes lie in one place"
        self._changed = changed
        self._tables.set(tables)
        batch = self._tables.place(rows, len(self._tokens))
        for row, number, count in batch.chained_tokens():
            batch.token[row : row + count] = self._tokens[number : number + count]
        self.ahead += bool(self._begun)
        self.launches += 1
        self.before(self.launches)
        self.sizes.append((len(batch.token), chosen))
        self.cache[batch.slot] = batch.token
        logits = np.array([self._after(batch.request[k], batch.position[k])
                           for k in range(chosen)])
        self._tokens = np.array([choose(x, c) for x, c in zip(logits, choices, strict=True)])
        self._begun.append(Result(self._tokens, logits))

    def _after(self, request: int, position: int) -> np.ndarray:
        at, size = np.arange(position + 1), self.limits.page
        pages = self._flat.reshape(self.limits.requests, -1)[request]
        seen = self.cache[pages[at // size] * size + at % size]
        assert (seen != NOTHING).all(), f"{request} at {position} reads what nobody has written"
        return self._logits(seen)

    def _logits(self, seen: np.ndarray) -> np.ndarray:
        return logits_after(seen, self.limits.vocab)

    def result(self, logits: int) -> Result:
        tokens, rows = self._begun.popleft()
        assert not (logits and self._begun)
        return Result(tokens, rows[:logits])

    def close(self) -> None:
        self.closed = True


def answer(prompt: Sequence[int], params: SamplingParams, context: int = 32) -> list[int]:
    """What a request gives if it is alone and nothing goes wrong; without penalties."""
    tokens, most = list(prompt), params.max_tokens or context
    while len(tokens) < min(context, len(prompt) + most):
        logits = logits_after(tokens)
        if params.temperature == 0:
            token = int(logits.argmax())
        else:
            p = SamplingParams(temperature=params.temperature, top_k=params.top_k,
                               top_p=params.top_p, min_p=params.min_p, seed=params.seed)
            token = draw(logits.astype(np.float64), p, chance(params.seed or 0, len(tokens) - 1))
        if token == EOS and not params.ignore_eos:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


@contextmanager
def engine(
    make: Callable[[], FakeRunner] = FakeRunner, **options: float
) -> Iterator[EngineCore]:
    wanted = {"max_model_len": 32, "max_waiting": 1000} | options
    made = EngineCore(make, EngineOptions(**wanted), None, (EOS,))
    try:
        yield made
    finally:
        made.close()
