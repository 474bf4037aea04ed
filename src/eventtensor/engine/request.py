"""One request: its tokens, how far it is, and whom its answer goes to."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from ..errors import EventTensorError
from ..models.rows import Row
from .grammar import Grammar
from .pages import Table
from .params import SamplingParams
from .text import Transcript


class Finish(StrEnum):
    """Why a request is over; the names are OpenAI's, as far as it has some."""

    stop = "stop"
    length = "length"
    cancelled = "cancelled"
    error = "error"


@dataclass(frozen=True)
class Logprobs:
    """log p of the token, and the likeliest tokens with theirs."""

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Chosen:
    token: int
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class Output:
    """What is new of an answer. The text may lag behind the tokens: half a character, or what may
    become a stop, is held back. The last output has a `finish`, and an `error` if that is one."""

    text: str = ""
    tokens: tuple[Chosen, ...] = ()
    finish: Finish | None = None
    error: EventTensorError | None = None


Sink = Callable[[Output], None]


@dataclass(eq=False)
class Request:
    """`tokens` are those of the prompt and of the answer so far, `done` of them are in the cache;
    `slot` is its row of the page table while it runs. `last` is what it may have in all."""

    tokens: list[int]
    params: SamplingParams
    last: int
    ends: frozenset[int]
    transcript: Transcript
    sink: Sink
    grammar: Grammar | None = None
    prompt: int = field(init=False)
    seed: int = field(init=False)
    on_host: bool = field(init=False)
    done: int = 0
    reused: int = 0  # tokens of the prompt that were in the cache before
    slot: int = -1
    table: Table = field(default_factory=Table)
    over: bool = False
    arrived: float = field(default_factory=time.monotonic)
    told: float = 0.0  # when its last token was there

    def __post_init__(self) -> None:
        self.prompt, self.on_host = len(self.tokens), self.params.on_host
        seed = self.params.seed
        self.seed = secrets.randbits(64) if seed is None else seed

    @property
    def left(self) -> int:
        """Known tokens that are not in the cache."""
        return len(self.tokens) - self.done

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.prompt :]

    def rows(self, most: int) -> list[Row]:
        """The next ones, in order."""
        end = min(len(self.tokens), self.done + most)
        return [Row(self.slot, self.tokens[k], k) for k in range(self.done, end)]

    def accept(self, token: int) -> Finish | None:
        """Why the request is over with this token, if it is. One of `ends` is no part of it."""
        if token in self.ends:
            return Finish.stop
        self.tokens.append(token)
        if self.grammar is not None and self.grammar.over:
            return Finish.stop
        return Finish.length if len(self.tokens) >= self.last else None
