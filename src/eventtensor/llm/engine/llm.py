"""`LLM`: a model, its kernel and an engine in one object, for Python programs.

Requests are scheduled in engine_core.py. A server around an `LLM` is in the package `serve`."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...errors import BadOption, BadParameter, BadPrompt, PromptTooLong
from ..array_types import Progress
from ..model.step_limits import MAX_REQUESTS
from ..runner.free_memory import free_memory
from ..runner.runner import DTYPES, Runner, layout_of
from ..runner.target_name import find_target
from ..text.chat_template import Message
from ..text.control_tokens import texts_in
from ..text.tokenizer import Tokenizer
from ..weights.model_source import Model, open_model
from ..weights.weight_loader import load_weights
from .argument_aliases import accept_old_names
from .capacity import CapacityOptions, compute_capacity, max_prefill_items
from .engine_core import EngineCore, EngineOptions
from .request import FinishReason, Output, Request, ScoredToken
from .sampling_params import SamplingParams

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class Completion:
    """An answer: its text and its tokens, with log probabilities if the params ask for them.
    `prompt_tokens` is the number of tokens of the prompt. `prompt_logprobs` are those tokens with
    log probabilities, if the params ask for them; the first has none, because no token is before
    it."""

    text: str
    tokens: tuple[ScoredToken, ...]
    finish: FinishReason
    prompt_tokens: int
    prompt_logprobs: Sequence[ScoredToken] = ()


class LLM:
    """`model` is a name for `open_model`. Up to `max_num_seqs` requests run at a time, each of up
    to `max_model_len` tokens (None: what the model has, as far as memory goes). The KV cache of all
    of them has `cache_gb` (None: what they need, as far as memory goes). On a GPU, weights, cache
    and scratch then take up to `gpu_memory_utilization` of its memory. On the host a cache takes up
    to 4 GB, and up to a quarter of the free memory.

    A step has up to `max_num_batched_tokens` tokens. While some request decodes, prefill takes at
    most `max_prefill_tokens` of them (None: all that are free). Fewer make a step shorter, and the
    first token of other requests later. Up to `max_waiting` more requests wait.

    Answers do not depend on the batch: always on a CPU, and with `batch_invariant` on a GPU.
    Without it a step there runs the kernel that is fastest for its number of tokens. With an
    `artifact`, a folder that `eventtensor compile` wrote, nothing is compiled.

    Objects of a JSON schema have only the properties that the schema names, where it says nothing
    of others: a small model adds its own without end. With `additional_properties` they may have
    others, as JSON Schema says."""

    @accept_old_names(context="max_model_len", max_running="max_num_seqs",
                      rows="max_num_batched_tokens", prompt_rows="max_prefill_tokens",
                      same_bits="batch_invariant")
    def __init__(
        self,
        model: str | Model,
        *,
        target: str = "auto",
        dtype: str = "bf16",
        max_model_len: int | None = None,
        max_num_seqs: int = MAX_REQUESTS,
        max_waiting: int = 4096,
        cache_gb: float | None = None,
        gpu_memory_utilization: float = 0.9,
        max_num_batched_tokens: int = 128,
        max_prefill_tokens: int | None = None,
        batch_invariant: bool = False,
        additional_properties: bool = False,
        step_limit_s: float = 60.0,
        progress: Progress | None = None,
        artifact: str | Path | None = None,
        **options: Any,
    ) -> None:
        self.model = model if isinstance(model, Model) else open_model(model)
        self.target, config = find_target(target), self.model.config
        if dtype not in DTYPES:
            raise BadOption(f"unknown dtype {dtype!r}", hint=f"one of {', '.join(DTYPES)}")
        self.dtype, kind, device = dtype, DTYPES[dtype].numpy, options.get("device", 0)
        layout = layout_of(self.target, dtype, max_num_batched_tokens, batch_invariant)
        wanted = CapacityOptions(max_model_len, max_num_seqs, max_num_batched_tokens, cache_gb,
                                 gpu_memory_utilization)
        self.capacity = compute_capacity(
            config, layout, kind.itemsize, wanted, free_memory(self.target, device)
        )
        self.max_model_len = self.capacity.max_model_len
        began = time.perf_counter()
        self._weights = load_weights(self.model, layout, kind, progress, device)
        self.weight_load_s = time.perf_counter() - began

        def make_runner() -> Runner:
            return Runner(
                config,
                self._weights.arrays,
                target=self.target,
                dtype=dtype,
                pages=self.capacity.num_blocks,
                positions=self.capacity.num_positions,
                requests=max_num_seqs,
                rows=max_num_batched_tokens,
                sampling=True,
                batch_invariant=batch_invariant,
                progress=progress,
                artifact=None if artifact is None else Path(artifact),
                **options,
            )

        tokenizer = self.model.tokenizer
        self.engine = EngineCore(
            make_runner,
            EngineOptions(
                self.max_model_len,
                max_waiting,
                step_limit_s,
                max_prefill_tokens,
                max_prefill_items(self.target == "cuda"),
                additional_properties,
            ),
            tokenizer,
            tokenizer.eos if tokenizer is not None else config.eos,
        )

    @property
    def context(self) -> int:
        """The name of `max_model_len` in the last release."""
        warnings.warn("context is called max_model_len now", DeprecationWarning, stacklevel=2)
        return self.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        if self.model.tokenizer is None:
            raise BadPrompt(f"{self.model.name} has no tokenizer, so it cannot take a text",
                            hint="give tokens")
        return self.model.tokenizer

    def generate(
        self, prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """An answer for each prompt (a text, or tokens), all at the same time. `params` are for all
        prompts, or a list with one for each. If a request fails, this raises its error and cancels
        the others."""
        all_prompts = _list_prompts(prompts)
        all_params = _list_params(params, len(all_prompts))
        streams, done = list[_RequestStream](), list[Completion]()
        try:
            for prompt, p in zip(all_prompts, all_params, strict=True):
                if len(streams) - len(done) >= self.engine.max_open_requests:  # others wait here
                    done.append(streams[len(done)].collect())
                streams.append(_RequestStream(self.engine, self.tokens(prompt), p))
            return done + [stream.collect() for stream in streams[len(done) :]]
        finally:
            for stream in streams:
                stream.cancel()

    def chat(
        self, messages: Sequence[Message], params: SamplingParams | None = None, **options: Any
    ) -> Completion:
        """The answer to a chat. The chat template of the model gets the options."""
        return self.generate([self.tokenizer.chat(messages, **options)], params)[0]

    def stream(
        self, prompt: Prompt | Sequence[Message], params: SamplingParams | None = None
    ) -> Iterator[Output]:
        """The outputs for a prompt, or for a chat, as they arrive. Closing the iterator cancels the
        request."""
        answer = _RequestStream(self.engine, self.tokens(prompt), params or SamplingParams())
        try:
            yield from answer
        finally:
            answer.cancel()

    def tokens(self, prompt: Prompt | Sequence[Message], /, **options: Any) -> list[int]:
        """The tokens of a text or of a chat, whose template gets the options; tokens stay as they
        are. A text that cannot fit the context with the longest tokens is an error before it is
        encoded."""
        if isinstance(prompt, str):
            return self.text_tokens(prompt)
        some = list[Any](prompt)
        if not (some and isinstance(some[0], Mapping)):
            return some
        self._check_size(texts_in([some, options]))
        return self.tokenizer.chat(some, **options)

    def text_tokens(self, text: str, first: bool = True) -> list[int]:
        """With `first` the tokenizer's first token is added, if it has one."""
        self._check_size([text])
        return self.tokenizer.encode(text, first)

    def _check_size(self, texts: Iterable[str]) -> None:
        size = sum(len(text.encode(errors="surrogatepass")) for text in texts)
        if size > (most := self.max_model_len * self.tokenizer.max_token_bytes):
            raise PromptTooLong(self.max_model_len, f"{size} bytes: more than {most}, as a token "
                                f"has up to {self.tokenizer.max_token_bytes}")

    def close(self, timeout_s: float | None = None) -> bool:
        """Ends the engine and frees the weights. False, with nothing freed, if a step takes longer
        than the timeout."""
        ended = self.engine.close(timeout_s)
        if ended:
            self._weights.close()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _RequestStream:
    """Iterates over the outputs of one request as they arrive; raises the error of a failed one."""

    def __init__(self, engine: EngineCore, tokens: list[int], params: SamplingParams) -> None:
        self._engine, self._outputs = engine, queue.SimpleQueue[Output]()
        self._request: Request = engine.submit(tokens, params, self._outputs.put)

    def __iter__(self) -> Iterator[Output]:
        while True:
            output = self._outputs.get()
            if output.error is not None:
                raise output.error
            yield output
            if output.finish is not None:
                return

    def collect(self) -> Completion:
        outputs = list(self)
        finish = outputs[-1].finish
        assert finish is not None
        return Completion("".join(o.text for o in outputs),
                          tuple(t for o in outputs for t in o.tokens), finish,
                          self._request.num_prompt_tokens,
                          next((o.prompt for o in outputs if o.prompt), ()))

    def cancel(self) -> None:
        if not self._request.is_over:
            self._engine.cancel(self._request)


def _list_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of numbers is one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    some = list[Any](prompts)
    return [some] if some and isinstance(some[0], int) else some


def _list_params(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise BadParameter(f"there are {len(params)} params for {count} prompts",
                           hint="give one for all prompts, or one for each")
    return list(params)
