"""Turns a validated request into engine requests and their outputs into an HTTP response.

It encodes prompts, compiles grammars and submits requests, each with a bound on how many run at a
time. API modules parse bodies and choose the writer; `streaming.py` writes the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...errors import BadChat, BadGrammar, BadParameter, StepStuck
from ..engine.grammar import Grammar
from ..engine.llm import LLM
from ..engine.sampling_params import SamplingParams
from .chat_format import AnswerFormat, ChatFormat
from .chat_request import ChatRequest
from .deltas import OutputParser, PlainText
from .output_queue import (
    AsyncOutputQueue,
    ClientDisconnected,
    RequestGroup,
    run_until_disconnect,
)
from .prompt_logprobs import check_entries
from .response_writer import ResponseWriter
from .streaming import CompletionStream, EventStreamResponse
from .tracing import TRACE_KEY, RequestTrace

# Grammars that compile at a time. Some take seconds, and other work needs threads too.
_MAX_COMPILATIONS = 2
# Texts that are encoded at a time. Each needs up to 200 times its own memory.
_MAX_ENCODINGS = 2


@dataclass(frozen=True)
class TokenizedChat:
    """The prompt tokens of a chat, and the format of its answers."""

    tokens: list[int]
    format: AnswerFormat


class GenerationService:
    outputs: AsyncOutputQueue  # set when the event loop starts

    def __init__(self, llm: LLM, format: ChatFormat | None) -> None:
        """`format` is None for a model without a tokenizer, which has no chats."""
        self._llm, self._format = llm, format
        self._encoders = asyncio.Semaphore(_MAX_ENCODINGS)
        self._compilers = asyncio.Semaphore(_MAX_COMPILATIONS)

    async def tokenize_chat(self, chat: ChatRequest) -> TokenizedChat:
        async with self._encoders:
            return await asyncio.to_thread(self._tokenize_chat, chat)

    def _tokenize_chat(self, chat: ChatRequest) -> TokenizedChat:
        """The template and the answer format both take long for large tools."""
        tokens = self._encode_chat(chat)
        return TokenizedChat(tokens, self._required_format.answer_format(chat, tokens))

    async def respond_to_chat(
        self, request: Request, chat: TokenizedChat, writer: ResponseWriter, stream: bool
    ) -> Response:
        format = chat.format
        try:
            return await self.respond(request, [chat.tokens], format.params, writer, stream,
                                      format.make_parser)
        except BadGrammar as e:
            raise format.explain(e) from e

    async def respond(
        self, request: Request, prompts: Sequence[list[int]], params: Sequence[SamplingParams],
        writer: ResponseWriter, stream: bool,
        make_parser: Callable[[], OutputParser] = PlainText,
    ) -> Response:
        """Answers each prompt once for each of `params`. An error before the first token gets its
        own status code, even for a stream."""
        engine = self._llm.engine
        check_entries(prompts, params)
        if engine.stuck_s:
            raise StepStuck("a step does not end, and nothing can be answered meanwhile")
        grammar = await self._compile_grammar(request, params[0])
        pairs = [(tokens, p) for tokens in prompts for p in params]
        group = RequestGroup(engine, pairs, self.outputs, grammar)
        request.scope[TRACE_KEY] = RequestTrace(group, len(params))
        try:
            found = CompletionStream(group, writer, sum(map(len, prompts)), make_parser)
            if not stream:
                text = await run_until_disconnect(request.receive, found.whole())
                return Response(text, media_type="application/json")
            await run_until_disconnect(request.receive, found.wait_first())
            return EventStreamResponse(found)
        except BaseException:
            group.cancel()
            raise

    async def _compile_grammar(self, request: Request, params: SamplingParams) -> Grammar | None:
        """Compiles in a thread. A client that left while it waited gets no compilation."""
        if not params.has_grammar:
            return None
        async with self._compilers:
            if await request.is_disconnected():
                raise ClientDisconnected
            return await asyncio.to_thread(self._llm.engine.grammars.compile, params)

    # ---- tokens ------------------------------------------------------------------------------

    async def encode_prompt(self, prompt: str | list[int], add_first: bool = True) -> list[int]:
        """Encodes in a thread. `add_first` adds the tokenizer's first token."""
        if not isinstance(prompt, str):
            return self._llm.tokens(prompt)
        async with self._encoders:
            return await asyncio.to_thread(self._llm.text_tokens, prompt, add_first)

    async def decode_prompt(self, prompt: str | list[int]) -> str:
        """The text of a prompt, with special tokens written out."""
        if isinstance(prompt, str):
            return prompt
        if self._llm.model.tokenizer is None:
            return ""
        end = self._llm.model.config.vocab
        if not all(0 <= t < end for t in prompt):
            raise BadParameter("there are tokens out of range", hint=f"0 to {end - 1}")
        return await asyncio.to_thread(self._llm.tokenizer.decode_long, prompt)

    async def encode_chat(self, chat: ChatRequest) -> list[int]:
        async with self._encoders:
            return await asyncio.to_thread(self._encode_chat, chat)

    def _encode_chat(self, chat: ChatRequest) -> list[int]:
        messages, options = self._required_format.render(chat)
        return self._llm.tokens(messages, **options)

    @property
    def _required_format(self) -> ChatFormat:
        if self._format is None:
            raise BadChat("a model without a tokenizer has no chats", hint="give tokens")
        return self._format
