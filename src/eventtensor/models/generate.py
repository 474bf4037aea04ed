"""Text, token by token: prompts go through the kernel in chunks, beside the requests that already
decode; then every request gets a token a step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Self

from ..errors import BadOption, NoDevice
from ..runtime.cuda.driver import device
from .attention_half import SPLIT_TOKENS, page_tokens
from .loading import load_weights
from .pack import Progress
from .rows import chance, stands_alone
from .runner import DTYPES, Choice, Row, Runner, layout_of
from .source import Model
from .step import MAX_REQUESTS


@dataclass(frozen=True)
class Settings:
    """How tokens are chosen, and how many at most. Temperature 0 takes the likeliest."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        fine = {
            "max_tokens": (self.max_tokens >= 1, "1 or more"),
            "temperature": (isfinite(self.temperature) and self.temperature >= 0, "0 or more"),
            "top_k": (self.top_k >= 0, "0 (all tokens) or more"),
            "top_p": (0 < self.top_p <= 1, "more than 0 and at most 1"),
            "seed": (0 <= self.seed < 1 << 64, "between 0 and 2^64 - 1"),
        }
        for name, (good, wanted) in fine.items():
            if not good:
                raise BadOption(f"{name} is {getattr(self, name)}", hint=f"it must be {wanted}")

    def choice(self, position: int) -> Choice:
        """Of the token after this position: seed and position alone decide its chance."""
        if self.temperature == 0:
            return Choice()
        return Choice(self.temperature, self.top_k, self.top_p, chance(self.seed, position))


GREEDY = Settings()


@dataclass(frozen=True)
class Timing:
    """`prefill_s` up to the first token; `decode_s` are all steps after it, in which `read` bytes
    came from memory at least. `tokens` are those of the decoding steps."""

    prompt: int = 0
    prefill_s: float = 0.0
    tokens: int = 0
    steps: int = 0
    decode_s: float = 0.0
    read: int = 0

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.decode_s if self.decode_s else 0.0

    @property
    def read_rate(self) -> float:
        """Bytes a second."""
        return self.read / self.decode_s if self.decode_s else 0.0


@dataclass
class Request:
    """`known` are the tokens so far, `done` of them are in the cache."""

    number: int
    pages: list[int]
    known: list[int]
    last: int  # tokens that it may have in all
    done: int = 0

    @property
    def left(self) -> int:
        return len(self.known) - self.done

    def rows(self, most: int) -> list[Row]:
        """The next ones, in order."""
        end = min(len(self.known), self.done + most)
        return [Row(self.number, self.known[k], k) for k in range(self.done, end)]


@dataclass
class Batch:
    """The rows of one step, those first whose token is chosen."""

    chosen: list[Row] = field(default_factory=list)
    more: list[Row] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return self.chosen + self.more


def next_batch(requests: Sequence[Request], most: int) -> Batch:
    """A row for each request that decodes; what room is left goes to prompts, first come first."""
    batch, room = Batch(), most
    for r in sorted(requests, key=lambda r: r.left > 1):
        rows = r.rows(room)
        room -= len(rows)
        if len(rows) == r.left:
            batch.chosen.append(rows.pop())
        batch.more += rows
    return batch


class Generator:
    """A model on a target, with a cache for `requests` of up to `context` tokens each. Temperatures
    above 0 need `sampling`. With `same_bits` (see Runner) the tokens of a request do not depend on
    the others; else, on a GPU, they may where two tokens are all but equally likely."""

    def __init__(
        self, model: Model, *, target: str = "auto", dtype: str = "bf16", context: int = 2048,
        requests: int = 1, sampling: bool = False, same_bits: bool = False,
        progress: Progress | None = None, **options: Any,
    ) -> None:
        target = find_target(target)
        if dtype not in DTYPES:
            raise BadOption(f"unknown dtype {dtype!r}", hint=f"one of {', '.join(DTYPES)}")
        if not 1 <= requests <= MAX_REQUESTS or context < 1:
            raise BadOption(f"{requests} requests of {context} tokens",
                            hint=f"1 to {MAX_REQUESTS} requests, a context of 1 or more")
        self.model, self.requests = model, requests
        self.context = min(context, model.config.max_position)
        self._pages_each = -(-self.context // page_tokens(model.config))
        layout = layout_of(target, dtype, same_bits=same_bits)
        self._weights = load_weights(model, layout, DTYPES[dtype].numpy, progress,
                                     options.get("device", 0))
        self.runner = Runner(
            model.config, self._weights.arrays, target=target, dtype=dtype,
            pages=requests * self._pages_each,
            positions=-(-self.context // SPLIT_TOKENS) * SPLIT_TOKENS, requests=requests,
            sampling=sampling, same_bits=same_bits, progress=progress, **options,
        )
        self.timing = Timing()

    @property
    def target(self) -> str:
        return self.runner.target

    @property
    def eos(self) -> tuple[int, ...]:
        tokenizer = self.model.tokenizer
        return tokenizer.eos if tokenizer is not None else self.model.config.eos

    def tokens(self, prompt: Sequence[int], settings: Settings = GREEDY) -> Iterator[int]:
        """The answer to one prompt, without the token that ends it."""
        for _, token in self.stream([prompt], settings):
            yield token

    def stream(
        self, prompts: Sequence[Sequence[int]], settings: Settings = GREEDY
    ) -> Iterator[tuple[int, int]]:
        """(number of the prompt, token), as they come. `timing` is that of the last stream."""
        active = self._requests(prompts, settings)
        tables = [r.pages for r in active]
        self.timing = Timing(prompt=sum(len(p) for p in prompts))
        while active:
            batch = next_batch(active, self.runner.limits.rows)
            # A compiler that is still busy is not our speed.
            self.runner.ready(len(batch.rows), stands_alone(batch.rows, len(batch.chosen)))
            started = time.perf_counter()
            found = self._step(batch, tables, settings)
            self._count(batch, active, time.perf_counter() - started)
            taken = Counter(row.request for row in batch.rows)
            for r in active:
                r.done += taken[r.number]
            for row, token in zip(batch.chosen, found, strict=True):
                request = next(r for r in active if r.number == row.request)
                if self._ends(request, token):
                    active.remove(request)
                if token not in self.eos:
                    yield request.number, token

    def _requests(self, prompts: Sequence[Sequence[int]], settings: Settings) -> list[Request]:
        if not 1 <= len(prompts) <= self.requests:
            raise BadOption(f"there are {len(prompts)} prompts for {self.requests} requests",
                            hint="make the Generator with requests=")
        for prompt in prompts:
            if not 1 <= len(prompt) <= self.context:
                raise BadOption(
                    f"a prompt has {len(prompt)} tokens; the context has room for {self.context}",
                    hint="a prompt has one token at least; shorten it, or make the context larger",
                )
        each = self._pages_each
        return [
            Request(k, list(range(k * each, k * each + each)), list(p),
                    len(p) + settings.max_tokens)
            for k, p in enumerate(prompts)
        ]

    def _step(self, batch: Batch, tables: list[list[int]], settings: Settings) -> list[int]:
        """Where no prompt comes to its end, some row gets a token that nobody wants."""
        chosen = len(batch.chosen)
        choices = [settings.choice(r.position) for r in batch.rows[: max(1, chosen)]]
        found = self.runner.step(batch.rows, tables, max(1, chosen), choices, logits=0)
        return [int(t) for t in found.tokens[:chosen]]

    def _ends(self, request: Request, token: int) -> bool:
        request.known.append(token)
        full = len(request.known) > self.context
        return token in self.eos or full or len(request.known) >= request.last

    def _count(self, batch: Batch, active: list[Request], took: float) -> None:
        t = self.timing
        if any(r.left > 1 or r.done == 0 for r in active):
            self.timing = replace(t, prefill_s=t.prefill_s + took)
            return
        self.timing = replace(
            t, tokens=t.tokens + len(batch.chosen), steps=t.steps + 1,
            decode_s=t.decode_s + took, read=t.read + self.runner.bytes_read(batch.rows),
        )

    def close(self) -> None:
        try:
            self.runner.close()
        finally:
            self._weights.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_target(name: str) -> str:
    """`auto` is the GPU, where there is one."""
    if name not in ("auto", "cuda", "cpu", "interp"):
        raise BadOption(f"unknown target {name!r}", hint="auto, cuda or cpu")
    if name != "auto":
        return name
    try:
        device(0)
    except NoDevice:
        return "cpu"
    return "cuda"
