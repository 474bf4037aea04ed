"""The engine: a thread that steps as long as there are requests. Others only put commands into its
queue, so that what is scheduled has one owner."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil

from ..errors import (
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
from ..models.runner import Result, Runner, TokenChoice
from ..models.text.tokenizer import Tokenizer
from .detokenizer import Transcript
from .grammar import Grammar, Grammars
from .logprobs import logprobs
from .request import Chosen, Finish, Output, Request, Sink
from .sampling_params import SamplingParams
from .scheduler import Scheduler, Step
from .stats import Stats
from .token_bitmask import without

MOST_FAILURES = 3  # of steps, with none between that succeeds


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


class Engine:
    """`make_runner` is called for the first runner, and for another if a launch has failed: then
    the requests of that step fail, and later ones find an empty cache. `eos` ends answers."""

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
        self.scheduler, self.stats = self._scheduler(), Stats()
        self.failure: EventTensorError | None = None  # why it runs no more
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._open: set[Request] = set()
        self._guard = threading.Lock()  # of _open and failure, which more than one thread changes
        self._new: list[tuple[Request, Chosen, Finish | None]] = []  # not yet told
        self._failures, self._stopping = 0, False
        self._step_began: float | None = None
        self._ahead: Step | None = None  # its kernel runs already
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def _scheduler(self) -> Scheduler:
        return Scheduler(self.runner.limits, self.options.max_prefill_tokens,
                         self.options.max_prefill_items)

    # ---- for any thread ----------------------------------------------------------------------

    def submit(
        self, prompt: Sequence[int], params: SamplingParams, sink: Sink,
        grammar: Grammar | None = None,
    ) -> Request:
        """`sink` gets every output, on the engine's thread, and must not block. What is wrong with
        a request is raised here. `grammar` is the one of the params, if it is compiled already."""
        request = self._request(prompt, params, sink, grammar)
        with self._guard:
            if self.failure is not None:
                raise EngineStopped(f"the engine has stopped: {self.failure.message}")
            if len(self._open) >= self.most:
                raise QueueFull(f"{self.most} requests are running or waiting",
                                retry_s=self._queue_s())
            if not self._open:
                self.stats.pace.begin(time.monotonic())
            self._open.add(request)
        self._commands.put(lambda: None if request.over else self.scheduler.add(request))
        return request

    def _request(
        self, prompt: Sequence[int], params: SamplingParams, sink: Sink, grammar: Grammar | None
    ) -> Request:
        tokens, context, vocab = list(prompt), self.options.max_model_len, self.runner.limits.vocab
        if not tokens:
            raise BadPrompt("a prompt of 0 tokens")
        wanted = 1 if params.max_tokens is None else params.max_tokens
        if len(tokens) + wanted > context:
            raise PromptTooLong(context, f"{len(tokens)} tokens",
                                wanted if len(tokens) < context else 0)
        if not all(type(t) is int and 0 <= t < vocab for t in tokens):
            raise BadPrompt(f"a prompt has tokens beyond 0 to {vocab - 1}",
                            hint="tokens are numbers of this model's own vocabulary")
        if params.logit_bias is not None and not all(t < vocab for t in params.logit_bias):
            raise BadParameter(f"logit_bias has tokens beyond 0 to {vocab - 1}",
                               hint="tokens are numbers of this model's own vocabulary")
        last = context if params.max_tokens is None else len(tokens) + max(1, params.max_tokens)
        eos = frozenset() if params.ignore_eos else self.eos
        ends = eos.union(params.stop_token_ids)
        return Request(tokens, params, last, ends,
                       Transcript(self.tokenizer, params.stops, params.min_tokens,
                                  special=not params.skip_special_tokens), sink,
                       grammar or self.grammars.of(params),
                       without(ends, vocab) if params.min_tokens else None)

    def cancel(self, request: Request) -> None:
        """Ends it, at any time; without effect if it is over."""
        self._commands.put(lambda: self._end(request, Finish.cancelled))

    def close(self, timeout_s: float | None = None) -> bool:
        """Ends what is open, and the thread; False if a step does not end in so many seconds."""
        self._commands.put(self._stop)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def most(self) -> int:
        """Requests that may be open."""
        return self.runner.limits.requests + self.options.max_waiting

    @property
    def open(self) -> int:
        """Requests that are not over."""
        return len(self._open)

    def _queue_s(self) -> int | None:
        """Until there is room for another request, by what the engine knows."""
        at_a_time = self.runner.limits.requests
        waiting = max(1, len(self._open) - at_a_time)
        seconds = self.stats.pace.promise(waiting, at_a_time, time.monotonic())
        return None if seconds is None else max(1, ceil(seconds))

    @property
    def stuck_for(self) -> float:
        """Seconds that the step which runs now is beyond its limit; 0 if it is not."""
        began = self._step_began
        late = time.monotonic() - began - self.options.step_limit_s if began is not None else 0.0
        return max(0.0, late)

    def fail_stuck(self) -> None:
        """Tells all requests that the step does not end. If it does, later ones find the engine at
        work again."""
        limit = self.options.step_limit_s
        self.fail_open(StepStuck(f"a step takes longer than {limit:g} s", place="engine"))

    def fail_open(self, error: EventTensorError) -> None:
        """Ends all requests that are open, at once."""
        for request in list(self._open):
            self._finish(request, Output(finish=Finish.error, error=error))
            self._commands.put(partial(self._leave, request))

    # ---- the thread --------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping:
            try:
                self._obey()
                if not self._stopping:
                    self._turn()
            except Exception as e:  # whatever it is, the requests must hear of it
                self._recover(e)
        with suppress(Exception):  # of a runner that is lost already
            self.runner.close()

    def _turn(self) -> None:
        """On a GPU the next step is launched while this one runs, and requests hear of the one
        before: the host has the time of a step for all that."""
        step, self._ahead = self._ahead or self._begin(), None
        if step is None:
            self._tell()
            return
        if self._knows_next(step):
            self._ahead = self._begin()
        self._tell()
        result = self.runner.result(step.wanted)
        self._step_began = time.monotonic() if self._ahead is not None else None
        self._failures = 0
        self._collect(step, self._sample(step, result))

    def _begin(self) -> Step | None:
        """Launches the next step, if there is something to do. A request without a choice, as its
        grammar has no way on, is over, and the step is another."""
        while (step := self.scheduler.schedule()) is not None:
            choices = [c for r in step.chosen if (c := self._choice(r)) is not None]
            if len(choices) == len(step.chosen):
                break
        self.stats.look(self.scheduler)
        if step is not None:
            if self._step_began is None:
                self._step_began = time.monotonic()
            choices = [TokenChoice()] * step.first + choices  # tokens that nobody wants
            choices = choices or [TokenChoice()]
            self.runner.launch(step.rows, step.tables, len(choices), choices)
            self.scheduler.begun(step)
        return step

    def _choice(self, request: Request) -> TokenChoice | None:
        try:
            return request.choice()
        except Exception as e:
            self._end(request, Finish.error, _as_error(e))
            return None

    def _knows_next(self, step: Step) -> bool:
        """Whether the step after this one can be launched before its tokens are known: rows take
        them where they are made. Not if logits are changed by them, or fetched. Threads of a CPU
        would keep the tokens from being told."""
        return (self.runner.target == "cuda" and not step.wanted
                and not any(r.changes for r in step.chosen))

    def _sample(self, step: Step, result: Result) -> list[tuple[Request, Chosen]]:
        """A request whose choice fails is over, and no other is concerned."""
        found, row = [], 0
        for request, count in step.scored:
            try:
                if request.scores is not None and not request.over:
                    request.scores.add(result.logits[row : row + count])
            except Exception as e:
                self._end(request, Finish.error, _as_error(e))
            row += count
        for k, request in enumerate(step.chosen, step.first):
            if request.over or request.ended:
                continue
            try:
                found.append((request, _chosen(request, k, result)))
            except Exception as e:
                self._end(request, Finish.error, _as_error(e))
        return found

    def _collect(self, step: Step, found: list[tuple[Request, Chosen]]) -> None:
        self.scheduler.ended(step)
        now = time.monotonic()
        going_on = sum(request.told > 0 for request, _ in found)
        self.stats.step(len(step.rows), step.first + len(step.chosen), going_on)
        for request, new in found:
            finish = request.accept(new.token)
            self.stats.token(request, now)
            self._new.append((request, new, finish))
            if finish is not None:
                request.ended = True
                self.scheduler.remove(request)
        self.stats.look(self.scheduler)
        if self.runner.target != "cuda":
            self._tell()  # at once: a launch on threads ends when its step does

    def _tell(self) -> None:
        """Gives what is new to the requests, as text."""
        new, self._new = self._new, []
        for request, chosen, finish in new:
            if request.over:
                continue
            try:
                output = request.output(chosen, finish)
                if output.finish is None:
                    request.sink(output)
                    continue
                self.scheduler.remove(request)
                self._finish(request, output)
            except Exception as e:
                self._end(request, Finish.error, _as_error(e))

    def _obey(self) -> None:
        """All commands that are there; waits for one if there is nothing else to do."""
        s = self.scheduler
        idle = not (s.running or s.waiting or self._new or self._ahead)
        try:
            self._commands.get(block=idle)()
            while True:
                self._commands.get_nowait()()
        except queue.Empty:
            return

    def _stop(self) -> None:
        self._tell()
        self._fail(EngineStopped("the engine was closed", place="engine"))

    def _leave(self, request: Request) -> None:
        """The scheduler may be another than when the command was given."""
        self.scheduler.remove(request)

    # ---- ends --------------------------------------------------------------------------------

    def _end(
        self, request: Request, finish: Finish, error: EventTensorError | None = None
    ) -> None:
        self.scheduler.remove(request)
        self._finish(request, Output(finish=finish, error=error))

    def _finish(self, request: Request, output: Output) -> None:
        """Once, whoever is first. A sink that fails has nobody to tell it to."""
        with self._guard:
            if request.over:
                return
            request.over = True
            self._open.discard(request)
        self.stats.finish(request, output.finish or Finish.error)
        try:
            request.sink(output)
        except Exception:
            self.stats.lost += 1

    def _recover(self, cause: Exception) -> None:
        """Nobody knows what a step that failed has left in the cache, so it goes, and with it the
        requests that run. Those that wait go on waiting."""
        error, self._step_began, self._ahead = _as_error(cause), None, None
        self._tell()
        self._failures += 1
        for request in list(self.scheduler.running):
            self._end(request, Finish.error, error)
        try:
            if self._failures >= MOST_FAILURES:
                raise error
            self.runner.close()
            self.runner = self._make_runner()
        except Exception as e:
            self._fail(_as_error(e))
            return
        waiting = self.scheduler.waiting
        self.scheduler = self._scheduler()
        self.scheduler.waiting.extend(waiting)
        for request in waiting:
            request.promised = 0  # by a step that is lost

    def _fail(self, error: EventTensorError) -> None:
        """For good."""
        self._stopping = True
        with self._guard:
            self.failure = error
        for request in list(self._open):
            self._end(request, Finish.error, error)


def _chosen(request: Request, row: int, result: Result) -> Chosen:
    token, wanted = int(result.tokens[row]), request.params.logprobs
    if request.grammar is not None:
        request.grammar.accept(token)
    return Chosen(token, None if wanted is None else logprobs(result.logits[row], token, wanted))


def _as_error(e: Exception) -> EventTensorError:
    if isinstance(e, EventTensorError):
        return e
    return StepFailed(f"{type(e).__name__}: {e}", place="engine")
