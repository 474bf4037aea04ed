"""A request: its tokens, its progress through the cache, and the sink of its outputs.

The scheduler and the engine's thread change a request; other threads only read it. What a token's
text is, is decided in detokenizer.py, and how a token is sampled in sampling_params.py."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ...errors import EventTensorError
from ..array_types import Array
from ..runner.batch_arrays import LogitsChange, StepToken, TokenChoice
from .block_manager import BlockTable
from .detokenizer import Detokenizer
from .grammar import Grammar
from .logprobs import Logprobs, PromptLogprobs, ScoredToken
from .sampling_params import SamplingParams

__all__ = ["FinishReason", "Logprobs", "Output", "Request", "ScoredToken", "Sink"]


class FinishReason(StrEnum):
    """Why a request is over. The names are OpenAI's, as far as it has some."""

    stop = "stop"
    length = "length"
    cancelled = "cancelled"
    error = "error"


class Output(NamedTuple):
    """The new part of an answer. The text may lag behind the tokens, because the detokenizer holds
    back half a character, and text that may become a stop. The last output has a `finish`, and an
    `error` if that is its cause. `end` is the token that ended the answer, if it is no part of it.
    With `prompt_logprobs` the first output without an error has the tokens of the `prompt`."""

    text: str = ""
    tokens: tuple[ScoredToken, ...] = ()
    finish: FinishReason | None = None
    error: EventTensorError | None = None
    end: ScoredToken | None = None
    prompt: Sequence[ScoredToken] = ()


Sink = Callable[[Output], None]


@dataclass(eq=False)
class Request:
    """`tokens` are those of the prompt and of the answer so far, `max_len` of them at most.

    The first `num_computed_tokens` are in the cache, or will be when all launched steps have ended.
    A launched step may have one more token in flight, in its row `in_flight_row`. While the request
    runs it has a `slot`, a row of the block tables; `admission_id` counts how often it was
    admitted. A token of `end_tokens` ends the answer. Before `min_tokens` only tokens of
    `non_end_bitmask` may come.

    Without an answer (`max_tokens` is 0) a step samples the token after the prompt all the same:
    the request ends with it and drops it."""

    tokens: list[int]
    params: SamplingParams
    max_len: int
    end_tokens: frozenset[int]
    detokenizer: Detokenizer
    sink: Sink
    grammar: Grammar | None = None
    non_end_bitmask: Array | None = None
    num_prompt_tokens: int = field(init=False)
    seed: int = field(init=False)
    wants_logits: bool = field(init=False)  # of the tokens of its answer
    prompt_logprobs: PromptLogprobs | None = field(init=False)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # tokens of the prompt that were in the prefix cache
    slot: int = -1
    block_table: BlockTable = field(default_factory=BlockTable)
    admission_id: int = 0
    num_in_flight_tokens: int = 0
    in_flight_row: int = 0
    is_complete: bool = False  # it gets no more tokens, but its last output may be undelivered
    is_over: bool = False  # it has its last output
    is_prompt_delivered: bool = False  # the sink has the log probabilities of the prompt
    arrival_time_s: float = field(default_factory=time.monotonic)
    admission_time_s: float = 0.0  # of the first admission
    first_token_time_s: float = 0.0
    last_token_time_s: float = 0.0

    def __post_init__(self) -> None:
        self.num_prompt_tokens, params = len(self.tokens), self.params
        self.seed = secrets.randbits(64) if params.seed is None else params.seed
        self._bias = params.logit_bias or {}
        self._always_changes = (
            self.grammar is not None or params.penalises or bool(self._bias))
        self.wants_logits = params.logprobs is not None
        most = params.prompt_logprobs
        self.prompt_logprobs = None if most is None else PromptLogprobs(self.tokens, most)
        self._history = np.zeros(self.max_len if params.penalises else 0, np.int32)
        self._history_len = 0

    @property
    def num_tokens(self) -> int:
        """Tokens that are known, or will be when all launched steps have ended."""
        return len(self.tokens) + self.num_in_flight_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens that are not in the cache."""
        return len(self.tokens) + self.num_in_flight_tokens - self.num_computed_tokens

    @property
    def num_tokens_without_logits(self) -> int:
        """The first of the uncomputed tokens, after which no logits are needed."""
        if self.prompt_logprobs is None or self.prompt_logprobs.is_complete:
            return self.num_uncomputed_tokens - 1
        return self.prompt_logprobs.num_scored - self.num_computed_tokens

    @property
    def cacheable_tokens(self) -> list[int]:
        """Tokens that the request may take from the prefix cache, and the one after them."""
        if self.prompt_logprobs is None or self.prompt_logprobs.is_complete:
            return self.tokens
        return self.tokens[: self.prompt_logprobs.num_scored + 1]

    @property
    def needs_step(self) -> bool:
        """False if the token in flight is the last one."""
        return len(self.tokens) + self.num_in_flight_tokens < self.max_len

    @property
    def answer_tokens(self) -> list[int]:
        return self.tokens[self.num_prompt_tokens :]

    @property
    def changes_logits(self) -> bool:
        """Whether the token in flight is sampled from changed logits. The next step then waits for
        it, because a runner has one buffer for the changes."""
        return self._always_changes or (
            self.non_end_bitmask is not None and self._must_go_on(self.num_tokens - 1))

    def _must_go_on(self, num_tokens: int) -> bool:
        """Whether the answer may not end after so many tokens."""
        return num_tokens < self.num_prompt_tokens + self.params.min_tokens

    def make_step_tokens(self, max_count: int) -> list[StepToken]:
        """The next uncomputed tokens. The kernel reads a token in flight from the row that samples
        it."""
        known, first = len(self.tokens), self.num_computed_tokens
        found = [StepToken(self.slot, self.tokens[k], k)
                 for k in range(first, min(known, first + max_count))]
        if self.num_in_flight_tokens and first + max_count > known:
            found.append(StepToken(self.slot, ~self.in_flight_row, known))
        return found

    def make_choice(self) -> TokenChoice:
        """How the token after all these is sampled. A grammar that allows no token is an error."""
        must_go_on = self.non_end_bitmask is not None and self._must_go_on(self.num_tokens)
        changes = self._always_changes or must_go_on
        change = self._make_change(must_go_on) if changes else None
        return self.params.next_choice(self.seed, self.num_tokens - 1, change)

    def _make_change(self, must_go_on: bool) -> LogitsChange:
        """A grammar that allows nothing but the end may end before `min_tokens`."""
        p, allowed = self.params, None if self.grammar is None else self.grammar.allowed()
        if must_go_on and self.non_end_bitmask is not None:
            left = self.non_end_bitmask if allowed is None else allowed & self.non_end_bitmask
            allowed = left if left.any() else allowed
        if not p.penalises:
            return LogitsChange(self._history, 0, allowed=allowed, bias=self._bias)
        count = len(self.tokens)
        self._history[self._history_len : count] = self.tokens[self._history_len :]
        self._history_len = count
        return LogitsChange(self._history[:count], self.num_prompt_tokens, p.repetition_penalty,
                            p.presence_penalty, p.frequency_penalty, allowed, self._bias)

    def accept_token(self, token: int) -> FinishReason | None:
        """Adds the token that was in flight, unless it is one of `end_tokens`. Returns why the
        request is over, if it is."""
        self.num_in_flight_tokens -= 1
        if self.params.max_tokens == 0:
            return FinishReason.length
        if token in self.end_tokens:
            return FinishReason.stop
        self.tokens.append(token)
        if self.grammar is not None and self.grammar.is_over:
            return FinishReason.stop
        return FinishReason.length if len(self.tokens) >= self.max_len else None

    def make_output(self, new: ScoredToken, finish: FinishReason | None) -> Output:
        """The output of an accepted token. A stop in the text may finish the request here."""
        prompt: Sequence[ScoredToken] = ()
        if self.prompt_logprobs is not None and not self.is_prompt_delivered:
            prompt, self.is_prompt_delivered = self.prompt_logprobs, True
        if self.params.max_tokens == 0:
            return Output(finish=finish, prompt=prompt)
        if new.token in self.end_tokens:
            return Output(self.detokenizer.finish(), finish=finish, end=new, prompt=prompt)
        text = self.detokenizer.push(new.token)
        if self.detokenizer.is_stopped:
            finish = FinishReason.stop
        if finish is not None:
            text += self.detokenizer.finish(is_cut=finish is FinishReason.length)
        return Output(text, (new,), finish, prompt=prompt)
