"""The paths /tokenize, /detokenize and /tokenizer_info."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...errors import BadParameter
from ..engine.llm import LLM
from .api_parts import ApiParts
from .tokenize_bodies import DetokenizeBody, TokenizeBody
from .tokenizer_info import tokenizer_info


class TokensApi:
    def __init__(self, parts: ApiParts, llm: LLM) -> None:
        self._parts, self._llm = parts, llm

    async def tokenize(self, request: Request) -> Response:
        parts = self._parts
        async with parts.bodies.read(request, TokenizeBody) as body:
            parts.find_model(body.model)
            if (body.prompt is None) == (body.messages is None):
                raise BadParameter("there is not one of prompt and messages",
                                   hint="give one of them")
            chat = body.to_chat_request()
            if chat is not None:
                tokens = await parts.generation.encode_chat(chat)
            else:
                tokens = await parts.generation.encode_prompt(body.prompt or "", body.adds_first)
        return JSONResponse({"tokens": tokens, "count": len(tokens),
                             "max_model_len": self._llm.max_model_len})

    async def detokenize(self, request: Request) -> Response:
        async with self._parts.bodies.read(request, DetokenizeBody) as body:
            self._parts.find_model(body.model)
            text = await self._parts.generation.decode_prompt(body.tokens)
        return JSONResponse({"prompt": text})

    async def describe(self, _: Request) -> Response:
        return JSONResponse(tokenizer_info(self._llm.tokenizer, self._llm.max_model_len))
