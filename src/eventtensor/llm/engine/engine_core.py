"""The engine: one thread that runs steps as long as there are requests.

Other threads only put commands (submit, cancel, close) into its queue, so that one thread owns all
scheduled state. The scheduler chooses the tokens of a step, the runner computes it, and the engine
gives the results to the sinks of the requests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil

from ...errors import (
    BadOption,
    BadParameter,
    BadPrompt,
    EngineStopped,
    EventTensorError,
    PromptTooLong,
    QueueFull,
    StepFailed,
    StepStuck,
)
from ..runner.runner import Result, Runner, TokenChoice
from ..text.tokenizer import Tokenizer
from .detokenizer import Detokenizer
from .engine_stats import EngineStats
from .grammar import Grammar, Grammars
from .logprobs import ScoredToken, compute_logprobs
from .request import FinishReason, Output, Request, Sink
from .sampling_params import SamplingParams
from .scheduler import Scheduler, StepBatch
from .token_bitmask import bitmask_without

MAX_FAILED_STEPS = 3  # in a row


@dataclass(frozen=True)
class EngineOptions:
    """A request has up to `max_model_len` tokens, prompt and answer together. Up to `max_waiting`
    requests wait beside those that run. A step that takes longer than `step_limit_s` counts as
    stuck. While some request decodes, a step has at most `max_prefill_tokens` tokens of prompts
    (None: all that are free). `max_prefill_items` bounds their work items of attention (None: no
    bound). With `additional_properties` objects of a JSON schema may have properties of which it
    says nothing."""

    max_model_len: int
    max_waiting: int = 256
    step_limit_s: float = 60.0
    max_prefill_tokens: int | None = None
    max_prefill_items: int | None = None
    additional_properties: bool = False


class EngineCore:
    """`make_runner` makes the first runner, and another one after a launch has failed: then the
    requests of that step fail, and later ones find an empty cache. A token of `eos` ends an
    answer."""

    def __init__(
        self, make_runner: Callable[[], Runner], options: EngineOptions,
        tokenizer: Tokenizer | None = None, eos: Sequence[int] = (),
    ) -> None:
        self.options, self.tokenizer, self.eos = options, tokenizer, frozenset(eos)
        self._make_runner, self.runner = make_runner, make_runner()
        limits = self.runner.limits
        if options.max_model_len > min(limits.positions, limits.pages * limits.page):
            raise BadOption(f"a context of {options.max_model_len} tokens, but {limits.positions} "
                            f"positions and {limits.pages} pages of {limits.page} tokens",
                            hint="the longest request must fit, else it would wait for ever")
        if options.max_prefill_tokens is not None and options.max_prefill_tokens < 1:
            raise BadOption(f"max_prefill_tokens is {options.max_prefill_tokens}",
                            hint="1 or more, or None")
        self.grammars = Grammars(tokenizer, self.runner.limits.vocab, self.eos,
                                 options.additional_properties)
        self.scheduler, self.stats = self._make_scheduler(), EngineStats()
        self.failure: EventTensorError | None = None  # why the engine has stopped
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._open_requests: set[Request] = set()
        self._lock = threading.Lock()  # guards _open_requests and failure
        self._undelivered: list[tuple[Request, ScoredToken, FinishReason | None]] = []
        self._num_failed_steps, self._is_stopping = 0, False
        self._step_start_s: float | None = None
        self._next_batch: StepBatch | None = None  # launched behind the step that runs
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def _make_scheduler(self) -> Scheduler:
        return Scheduler(self.runner.limits, self.options.max_prefill_tokens,
                         self.options.max_prefill_items)

    # ---- called by any thread ----------------------------------------------------------------

    def submit(
        self, prompt: Sequence[int], params: SamplingParams, sink: Sink,
        grammar: Grammar | None = None,
    ) -> Request:
        """Queues a request, or raises what is wrong with it. The engine's thread calls `sink` with
        every output, so it must not block. `grammar` is that of the params, compiled already."""
        request = self._make_request(prompt, params, sink, grammar)
        with self._lock:
            if self.failure is not None:
                raise EngineStopped(f"the engine has stopped: {self.failure.message}")
            if len(self._open_requests) >= self.max_open_requests:
                raise QueueFull(f"{self.max_open_requests} requests are running or waiting",
                                retry_s=self._estimate_wait_s())
            if not self._open_requests:
                self.stats.finish_rate.start(time.monotonic())
            self._open_requests.add(request)
        self._commands.put(lambda: None if request.is_over else self.scheduler.add(request))
        return request

    def _make_request(
        self, prompt: Sequence[int], params: SamplingParams, sink: Sink, grammar: Grammar | None
    ) -> Request:
        tokens, vocab, most = list(prompt), self.runner.limits.vocab, self.options.max_model_len
        if not tokens:
            raise BadPrompt("a prompt of 0 tokens")
        wanted = 1 if params.max_tokens is None else params.max_tokens
        if len(tokens) + wanted > most:
            raise PromptTooLong(most, f"{len(tokens)} tokens", wanted if len(tokens) < most else 0)
        if not all(type(t) is int and 0 <= t < vocab for t in tokens):
            raise BadPrompt(f"a prompt has tokens beyond 0 to {vocab - 1}",
                            hint="tokens are numbers of this model's own vocabulary")
        if params.logit_bias is not None and not all(t < vocab for t in params.logit_bias):
            raise BadParameter(f"logit_bias has tokens beyond 0 to {vocab - 1}",
                               hint="tokens are numbers of this model's own vocabulary")
        max_len = most if params.max_tokens is None else len(tokens) + max(1, params.max_tokens)
        eos = frozenset() if params.ignore_eos else self.eos
        end_tokens = eos.union(params.stop_token_ids)
        detokenizer = Detokenizer(self.tokenizer, params.stops, params.min_tokens,
                                  has_special_tokens=not params.skip_special_tokens)
        return Request(tokens, params, max_len, end_tokens, detokenizer, sink,
                       grammar or self.grammars.compile(params),
                       bitmask_without(end_tokens, vocab) if params.min_tokens else None)

    def cancel(self, request: Request) -> None:
        """Ends the request, at any time; does nothing if it is over."""
        self._commands.put(lambda: self._end_request(request, FinishReason.cancelled))

    def close(self, timeout_s: float | None = None) -> bool:
        """Ends all open requests, and the thread. False if a step takes longer than the timeout."""
        self._commands.put(self._stop)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def max_open_requests(self) -> int:
        return self.runner.limits.requests + self.options.max_waiting

    @property
    def num_open_requests(self) -> int:
        """Requests that run or wait."""
        return len(self._open_requests)

    def _estimate_wait_s(self) -> int | None:
        """Seconds until there is room for another request; None if the engine cannot know yet."""
        at_a_time = self.runner.limits.requests
        waiting = max(1, len(self._open_requests) - at_a_time)
        seconds = self.stats.finish_rate.estimate_wait_s(waiting, at_a_time, time.monotonic())
        return None if seconds is None else max(1, ceil(seconds))

    @property
    def stuck_s(self) -> float:
        """Seconds that the running step is beyond its limit; 0 if it is not."""
        start = self._step_start_s
        late = time.monotonic() - start - self.options.step_limit_s if start is not None else 0.0
        return max(0.0, late)

    def fail_stuck(self) -> None:
        """Fails all open requests because a step does not end. If it ends later, the engine serves
        new requests again."""
        limit = self.options.step_limit_s
        self.fail_open_requests(StepStuck(f"a step takes longer than {limit:g} s", place="engine"))

    def fail_open_requests(self, error: EventTensorError) -> None:
        """Delivers the error to all open requests, at once."""
        for request in list(self._open_requests):
            self._deliver_last(request, Output(finish=FinishReason.error, error=error))
            self._commands.put(partial(self._remove, request))

    # ---- the engine's thread -----------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._drain_commands()
                if not self._is_stopping:
                    self._step()
            except Exception as e:  # any exception must reach the requests
                self._recover(e)
        with suppress(Exception):  # the runner may be lost already
            self.runner.close()

    def _step(self) -> None:
        """Reads one step. On a GPU the engine first launches the step after it and delivers the
        outputs of the step before, so the host has the time of a step for both."""
        batch, self._next_batch = self._next_batch or self._launch_next(), None
        if batch is None:
            self._deliver_outputs()
            return
        if self._can_launch_ahead(batch):
            self._next_batch = self._launch_next()
        self._deliver_outputs()
        result = self.runner.result(batch.num_logits)
        self._step_start_s = time.monotonic() if self._next_batch is not None else None
        self._num_failed_steps = 0
        self._apply_tokens(batch, self._read_tokens(batch, result))

    def _launch_next(self) -> StepBatch | None:
        """Launches the next step, if there are tokens to compute. A request whose grammar allows no
        token fails here, and the scheduler makes another step without it."""
        while (batch := self.scheduler.schedule()) is not None:
            choices = [c for r in batch.sampled if (c := self._make_choice(r)) is not None]
            if len(choices) == len(batch.sampled):
                break
        self.stats.observe(self.scheduler)
        if batch is not None:
            if self._step_start_s is None:
                self._step_start_s = time.monotonic()
            choices = [TokenChoice()] * batch.num_scored + choices  # the first tokens are dropped
            choices = choices or [TokenChoice()]
            self.runner.launch(batch.tokens, batch.block_tables, len(choices), choices)
            self.scheduler.mark_launched(batch)
        return batch

    def _make_choice(self, request: Request) -> TokenChoice | None:
        try:
            return request.make_choice()
        except Exception as e:
            self._end_request(request, FinishReason.error, _as_error(e))
            return None

    def _can_launch_ahead(self, batch: StepBatch) -> bool:
        """Whether the step after this one can be launched before its tokens are known: the kernel
        reads them where the running step writes them. Not if they are sampled from changed logits,
        or if logits are fetched. On a CPU the threads of a launch would delay the outputs."""
        return (self.runner.target == "cuda" and not batch.num_logits
                and not any(r.changes_logits for r in batch.sampled))

    def _read_tokens(
        self, batch: StepBatch, result: Result
    ) -> list[tuple[Request, ScoredToken]]:
        """The sampled tokens. A request fails alone, if its grammar or its log probabilities do."""
        found, row = [], 0
        for request, count in batch.scored_counts:
            try:
                if request.prompt_logprobs is not None and not request.is_over:
                    request.prompt_logprobs.add_logits(result.logits[row : row + count])
            except Exception as e:
                self._end_request(request, FinishReason.error, _as_error(e))
            row += count
        for k, request in enumerate(batch.sampled, batch.num_scored):
            if request.is_over or request.is_complete:
                continue
            try:
                found.append((request, _score_token(request, k, result)))
            except Exception as e:
                self._end_request(request, FinishReason.error, _as_error(e))
        return found

    def _apply_tokens(
        self, batch: StepBatch, found: list[tuple[Request, ScoredToken]]
    ) -> None:
        self.scheduler.mark_completed(batch)
        now = time.monotonic()
        num_later_tokens = sum(request.last_token_time_s > 0 for request, _ in found)
        self.stats.record_step(len(batch.tokens), batch.num_scored + len(batch.sampled),
                               num_later_tokens)
        for request, new in found:
            finish = request.accept_token(new.token)
            self.stats.record_token(request, now)
            self._undelivered.append((request, new, finish))
            if finish is not None:
                request.is_complete = True
                self.scheduler.remove(request)
        self.stats.observe(self.scheduler)
        if self.runner.target != "cuda":
            self._deliver_outputs()  # at once: a launch on threads ends when its step does

    def _deliver_outputs(self) -> None:
        """Gives the new tokens to the sinks, as text."""
        undelivered, self._undelivered = self._undelivered, []
        for request, token, finish in undelivered:
            if request.is_over:
                continue
            try:
                output = request.make_output(token, finish)
                if output.finish is None:
                    request.sink(output)
                    continue
                self.scheduler.remove(request)
                self._deliver_last(request, output)
            except Exception as e:
                self._end_request(request, FinishReason.error, _as_error(e))

    def _drain_commands(self) -> None:
        """Runs all queued commands; waits for one if the engine has nothing else to do."""
        s = self.scheduler
        is_idle = not (s.running or s.waiting or self._undelivered or self._next_batch)
        try:
            self._commands.get(block=is_idle)()
            while True:
                self._commands.get_nowait()()
        except queue.Empty:
            return

    def _stop(self) -> None:
        self._deliver_outputs()
        self._shut_down(EngineStopped("the engine was closed", place="engine"))

    def _remove(self, request: Request) -> None:
        """Looks up the scheduler now, because it may have changed since the command was queued."""
        self.scheduler.remove(request)

    # ---- the end of a request, and failures --------------------------------------------------

    def _end_request(
        self, request: Request, finish: FinishReason, error: EventTensorError | None = None
    ) -> None:
        self.scheduler.remove(request)
        self._deliver_last(request, Output(finish=finish, error=error))

    def _deliver_last(self, request: Request, output: Output) -> None:
        """Delivers a last output once, although several threads may try. If the sink fails, no one
        else could take the error."""
        with self._lock:
            if request.is_over:
                return
            request.is_over = True
            self._open_requests.discard(request)
        self.stats.record_finish(request, output.finish or FinishReason.error)
        try:
            request.sink(output)
        except Exception:
            self.stats.num_undelivered_ends += 1

    def _recover(self, cause: Exception) -> None:
        """Makes a new runner. The content of the cache is unknown after a failed step, so the
        requests that run fail with it. Those that wait go on waiting."""
        error, self._step_start_s, self._next_batch = _as_error(cause), None, None
        self._deliver_outputs()
        self._num_failed_steps += 1
        for request in list(self.scheduler.running):
            self._end_request(request, FinishReason.error, error)
        try:
            if self._num_failed_steps >= MAX_FAILED_STEPS:
                raise error
            self.runner.close()
            self.runner = self._make_runner()
        except Exception as e:
            self._shut_down(_as_error(e))
            return
        waiting = self.scheduler.waiting
        self.scheduler = self._make_scheduler()
        self.scheduler.waiting.extend(waiting)
        for request in waiting:
            request.num_in_flight_tokens = 0  # their step is lost

    def _shut_down(self, error: EventTensorError) -> None:
        """Ends the thread and all open requests, for good."""
        self._is_stopping = True
        with self._lock:
            self.failure = error
        for request in list(self._open_requests):
            self._end_request(request, FinishReason.error, error)


def _score_token(request: Request, row: int, result: Result) -> ScoredToken:
    token, num_top = int(result.tokens[row]), request.params.logprobs
    if request.grammar is not None:
        request.grammar.accept(token)
    if num_top is None:
        return ScoredToken(token)
    return ScoredToken(token, compute_logprobs(result.logits[row], token, num_top))


def _as_error(e: Exception) -> EventTensorError:
    if isinstance(e, EventTensorError):
        return e
    return StepFailed(f"{type(e).__name__}: {e}", place="engine")
