"""One request: its tokens, how far it is, and whom its answer goes to."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ..errors import EventTensorError
from ..models.batch_arrays import LogitsChange, StepToken, TokenChoice
from ..models.checkpoint import Array
from .block_manager import Table
from .detokenizer import Transcript
from .grammar import Grammar
from .logprobs import Chosen, Logprobs, PromptLogprobs
from .sampling_params import SamplingParams

__all__ = ["Chosen", "Finish", "Logprobs", "Output", "Request", "Sink"]


class Finish(StrEnum):
    """Why a request is over; the names are OpenAI's, as far as it has some."""

    stop = "stop"
    length = "length"
    cancelled = "cancelled"
    error = "error"


class Output(NamedTuple):
    """What is new of an answer. The text may lag behind the tokens: half a character, or what may
    become a stop, is held back. The last output has a `finish`, and an `error` if that is one.
    `end` is the token that ended the answer, if it is no part of it. With `prompt_logprobs` the
    first output that is no error has those of all tokens of the prompt."""

    text: str = ""
    tokens: tuple[Chosen, ...] = ()
    finish: Finish | None = None
    error: EventTensorError | None = None
    end: Chosen | None = None
    prompt: Sequence[Chosen] = ()


Sink = Callable[[Output], None]


@dataclass(eq=False)
class Request:
    """`tokens` are those of the prompt and of the answer so far; a step that runs may have one more
    `promised`, for its row `row`. `done` of them all are in the cache, or will be when the steps
    are over that were launched. `slot` is its row of the page table while it runs, since it was
    admitted the `stay`-th time. `last` is what it may have in all. `unending` has a bit for each
    token that is none of `ends`: only those may come before `min_tokens`. Without an answer
    (`max_tokens` is 0) the token after the prompt is made all the same, and belongs to nobody: with
    it the request ends."""

    tokens: list[int]
    params: SamplingParams
    last: int
    ends: frozenset[int]
    transcript: Transcript
    sink: Sink
    grammar: Grammar | None = None
    unending: Array | None = None
    prompt: int = field(init=False)
    seed: int = field(init=False)
    wants_logits: bool = field(init=False)  # of the tokens of its answer
    scores: PromptLogprobs | None = field(init=False)
    done: int = 0
    reused: int = 0  # tokens of the prompt that were in the cache before
    slot: int = -1
    table: Table = field(default_factory=Table)
    stay: int = 0
    promised: int = 0
    row: int = 0
    ended: bool = False  # it gets no more tokens, but may not have heard of it
    over: bool = False
    heard: bool = False  # its sink has the log probabilities of the prompt
    arrived: float = field(default_factory=time.monotonic)
    admitted: float = 0.0  # when it first had a row in a step
    first_told: float = 0.0  # when its first token was there
    told: float = 0.0  # when its last token was there

    def __post_init__(self) -> None:
        self.prompt, params = len(self.tokens), self.params
        self.seed = secrets.randbits(64) if params.seed is None else params.seed
        self._bias = params.logit_bias or {}
        self._always = self.grammar is not None or params.penalises or bool(self._bias)
        self.wants_logits = params.logprobs is not None
        most = params.prompt_logprobs
        self.scores = None if most is None else PromptLogprobs(self.tokens, most)
        self._history = np.zeros(self.last if params.penalises else 0, np.int32)
        self._kept = 0

    @property
    def count(self) -> int:
        """Tokens that are known, or will be when the steps are over that were launched."""
        return len(self.tokens) + self.promised

    @property
    def left(self) -> int:
        """Tokens that are not in the cache."""
        return len(self.tokens) + self.promised - self.done

    @property
    def plain(self) -> int:
        """Of the tokens that are left, the first so many need no logits."""
        if self.scores is None or self.scores.whole:
            return self.left - 1
        return self.scores.scored - self.done

    @property
    def reusable(self) -> list[int]:
        """Tokens that may be in the cache already, and the one after them."""
        if self.scores is None or self.scores.whole:
            return self.tokens
        return self.tokens[: self.scores.scored + 1]

    @property
    def goes_on(self) -> bool:
        """False if it ends with what it waits for."""
        return len(self.tokens) + self.promised < self.last

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.prompt :]

    @property
    def changes(self) -> bool:
        """Whether the last token that is promised is chosen by logits that are changed. The next
        step cannot be begun before it is known: what changes them is there once."""
        return self._always or (self.unending is not None and self._is_barred(self.count - 1))

    def _is_barred(self, count: int) -> bool:
        """Whether the answer may not end after so many tokens."""
        return count < self.prompt + self.params.min_tokens

    def rows(self, most: int) -> list[StepToken]:
        """The next ones, in order. What is promised comes from the row that gets it."""
        known, first = len(self.tokens), self.done
        found = [StepToken(self.slot, self.tokens[k], k)
                 for k in range(first, min(known, first + most))]
        if self.promised and first + most > known:
            found.append(StepToken(self.slot, ~self.row, known))
        return found

    def choice(self) -> TokenChoice:
        """How the token after all these is chosen. A grammar without a way on is an error."""
        barred = self.unending is not None and self._is_barred(self.count)
        change = self._change(barred) if self._always or barred else None
        return self.params.next_choice(self.seed, self.count - 1, change)

    def _change(self, barred: bool) -> LogitsChange:
        """`barred`: it does not end here. A grammar that has nothing else ends all the same."""
        p, allowed = self.params, None if self.grammar is None else self.grammar.allowed()
        if barred and self.unending is not None:
            left = self.unending if allowed is None else allowed & self.unending
            allowed = left if left.any() else allowed
        if not p.penalises:
            return LogitsChange(self._history, 0, allowed=allowed, bias=self._bias)
        count = len(self.tokens)
        self._history[self._kept : count] = self.tokens[self._kept :]
        self._kept = count
        return LogitsChange(self._history[:count], self.prompt, p.repetition_penalty,
                            p.presence_penalty, p.frequency_penalty, allowed, self._bias)

    def accept(self, token: int) -> Finish | None:
        """Why the request is over with this token, which was promised, if it is. One of `ends` is
        no part of it."""
        self.promised -= 1
        if self.params.max_tokens == 0:
            return Finish.length
        if token in self.ends:
            return Finish.stop
        self.tokens.append(token)
        if self.grammar is not None and self.grammar.over:
            return Finish.stop
        return Finish.length if len(self.tokens) >= self.last else None

    def output(self, new: Chosen, finish: Finish | None) -> Output:
        """What a token adds that was accepted."""
        prompt: Sequence[Chosen] = ()
        if self.scores is not None and not self.heard:
            prompt, self.heard = self.scores, True
        if self.params.max_tokens == 0:
            return Output(finish=finish, prompt=prompt)
        if new.token in self.ends:
            return Output(self.transcript.end(), finish=finish, end=new, prompt=prompt)
        text = self.transcript.push(new.token)
        if self.transcript.stopped:
            finish = Finish.stop
        if finish is not None:
            text += self.transcript.end(cut=finish is Finish.length)
        return Output(text, (new,), finish, prompt=prompt)
