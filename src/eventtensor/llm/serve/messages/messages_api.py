"""The paths under /v1/messages: create a message, count the tokens of one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..api_parts import ApiParts
from .messages_body import CountBody, MessagesBody
from .messages_writer import MessagesWriter


class MessagesApi:
    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    async def create(self, request: Request) -> Response:
        parts = self._parts
        async with parts.bodies.read(request, MessagesBody) as body:
            name = parts.find_model(body.model)
            chat = await parts.generation.tokenize_chat(body.to_chat_request())
        writer = MessagesWriter(name)
        return await parts.generation.respond_to_chat(request, chat, writer, bool(body.stream))

    async def count_tokens(self, request: Request) -> Response:
        async with self._parts.bodies.read(request, CountBody) as body:
            self._parts.find_model(body.model)
            chat = await self._parts.generation.tokenize_chat(body.to_chat_request())
        return JSONResponse({"input_tokens": len(chat.tokens)})
