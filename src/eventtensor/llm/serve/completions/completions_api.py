"""The path /v1/completions: prompts, params, writer, response."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ....errors import BadParameter
from ..api_parts import ApiParts
from .completion_body import CompletionBody
from .completion_writer import CompletionWriter

MAX_REQUESTS = 64  # answers to one HTTP request


class CompletionsApi:
    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    async def create(self, request: Request) -> Response:
        parts = self._parts
        async with parts.bodies.read(request, CompletionBody) as body:
            name = parts.find_model(body.model)
            given = body.prompts
            _check_count(len(given), body.count)
            params = body.choices()
            add_first = body.add_special_tokens is not False
            prompts = [await parts.generation.encode_prompt(p, add_first) for p in given]
        writer = CompletionWriter(name, parts.texts, body.wants_usage, body.wants_usage_so_far,
                                  body.prompt_logprobs, logprobs=body.logprobs)
        if body.echo:
            texts = [await parts.generation.decode_prompt(p) for p in given]
            writer.echo_texts = [text for text in texts for _ in params]
        return await parts.generation.respond(request, prompts, params, writer, bool(body.stream))


def _check_count(prompts: int, choices: int) -> None:
    if prompts * choices > MAX_REQUESTS:
        raise BadParameter(f"{prompts} prompts with n = {choices}",
                           hint=f"at most {MAX_REQUESTS} answers at a time")
