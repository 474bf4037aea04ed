"""The path /v1/chat/completions: body, tokens, writer, response."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..api_parts import ApiParts
from .chat_body import ChatBody
from .chat_writer import ChatWriter


class ChatApi:
    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    async def create(self, request: Request) -> Response:
        parts = self._parts
        async with parts.bodies.read(request, ChatBody) as body:
            name = parts.find_model(body.model)
            chat = await parts.generation.tokenize_chat(body.to_chat_request())
        writer = ChatWriter(name, parts.texts, body.wants_usage, body.wants_usage_so_far,
                            body.prompt_logprobs)
        return await parts.generation.respond_to_chat(request, chat, writer, bool(body.stream))
