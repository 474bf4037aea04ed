"""From a request that is read to its answer: prompts become tokens, then requests of the engine,
then a response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ..engine.grammar import Grammar
from ..engine.llm import LLM
from ..engine.sampling_params import SamplingParams
from ..errors import BadChat, BadGrammar, BadParameter, StepStuck
from .chat_format import AnswerForm, ChatFormat
from .chat_request import ChatRequest
from .deltas import OutputParser, PlainText
from .output_queue import Answers, ClientGone, Mailbox, until_gone
from .prompt_logprobs import check_entries
from .response_writer import ResponseWriter
from .streaming import AnswerStream, EventStream
from .tracing import TRACED, Traced

_COMPILERS = 2  # grammars at a time: some take seconds, and others need threads too
_ENCODERS = 2  # texts that are encoded at a time: each takes up to 200 times its own memory


@dataclass(frozen=True)
class Prompted:
    """What a chat is to the engine."""

    tokens: list[int]
    form: AnswerForm


class Answering:
    mailbox: Mailbox  # of the loop that it runs in

    def __init__(self, llm: LLM, format: ChatFormat | None) -> None:
        """`format`: None if the model has no tokenizer, and no chats."""
        self._llm, self._format = llm, format
        self._encoders = asyncio.Semaphore(_ENCODERS)
        self._compilers = asyncio.Semaphore(_COMPILERS)

    async def prompted(self, asked: ChatRequest) -> Prompted:
        async with self._encoders:
            return await asyncio.to_thread(self._prompted, asked)

    def _prompted(self, asked: ChatRequest) -> Prompted:
        """Large tools take their time, here as in the template."""
        tokens = self._chat_tokens(asked)
        return Prompted(tokens, self._known_format.answer(asked, tokens))

    async def chat(
        self, request: Request, prompted: Prompted, writer: ResponseWriter, stream: bool
    ) -> Response:
        form = prompted.form
        try:
            return await self.answer(request, [prompted.tokens], form.params, writer, stream,
                                     form.make_parser)
        except BadGrammar as e:
            raise form.explain(e) from e

    async def answer(
        self, request: Request, prompts: Sequence[list[int]], params: Sequence[SamplingParams],
        writer: ResponseWriter, stream: bool,
        make_parser: Callable[[], OutputParser] = PlainText,
    ) -> Response:
        """To each prompt with each of the params. Errors before the first token have a status of
        their own, also if the answer is a stream."""
        engine = self._llm.engine
        check_entries(prompts, params)
        if engine.stuck_for:
            raise StepStuck("a step does not end, and nothing can be answered meanwhile")
        grammar = await self._grammar(request, params[0])
        answers = Answers(engine, [(t, p) for t in prompts for p in params], self.mailbox, grammar)
        request.scope[TRACED] = Traced(answers, len(params))
        try:
            found = AnswerStream(answers, writer, sum(map(len, prompts)), make_parser)
            if not stream:
                text = await until_gone(request.receive, found.whole())
                return Response(text, media_type="application/json")
            await until_gone(request.receive, found.begin())
            return EventStream(found)
        except BaseException:
            answers.end()
            raise

    async def _grammar(self, request: Request, params: SamplingParams) -> Grammar | None:
        """Beside the loop, a few at a time. Nothing is compiled for a client that is gone."""
        if not params.has_grammar:
            return None
        async with self._compilers:
            if await request.is_disconnected():
                raise ClientGone
            return await asyncio.to_thread(self._llm.engine.grammars.of, params)

    # ---- tokens ------------------------------------------------------------------------------

    async def tokens(self, prompt: str | list[int], first: bool = True) -> list[int]:
        """Beside the loop, a few at a time. `first`: with the tokenizer's first token."""
        if not isinstance(prompt, str):
            return self._llm.tokens(prompt)
        async with self._encoders:
            return await asyncio.to_thread(self._llm.text_tokens, prompt, first)

    async def text(self, prompt: str | list[int]) -> str:
        """Of a prompt, as it was given; special tokens are written out."""
        if isinstance(prompt, str):
            return prompt
        if self._llm.model.tokenizer is None:
            return ""
        end = self._llm.model.config.vocab
        if not all(0 <= t < end for t in prompt):
            raise BadParameter("there are tokens out of range", hint=f"0 to {end - 1}")
        return await asyncio.to_thread(self._llm.tokenizer.decode_long, prompt)

    async def chat_tokens(self, asked: ChatRequest) -> list[int]:
        async with self._encoders:
            return await asyncio.to_thread(self._chat_tokens, asked)

    def _chat_tokens(self, asked: ChatRequest) -> list[int]:
        messages, options = self._known_format.prompt(asked)
        return self._llm.tokens(messages, **options)

    @property
    def _known_format(self) -> ChatFormat:
        if self._format is None:
            raise BadChat("a model without a tokenizer has no chats", hint="give tokens")
        return self._format
