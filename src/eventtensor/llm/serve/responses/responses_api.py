"""The paths under /v1/responses: create, count tokens, and read or delete stored responses."""

from __future__ import annotations

import asyncio
import json

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....errors import BadParameter
from ..api_parts import ApiParts
from ..generation_service import TokenizedChat
from ..response_writer import Json
from .response_store import ResponseStore, StoredResponse
from .responses_body import ResponsesBody
from .responses_writer import ResponsesWriter, StoreCallback, discard_response
from .stored_chats import load_chat

_MAX_READS = 2  # stored chats that load at a time
_PAGE_ITEMS, _MAX_PAGE_ITEMS = 20, 100


class ResponsesApi:
    def __init__(self, parts: ApiParts, store: ResponseStore) -> None:
        self._parts, self.store = parts, store
        self._readers = asyncio.Semaphore(_MAX_READS)

    async def create(self, request: Request) -> Response:
        parts = self._parts
        async with parts.bodies.read(request, ResponsesBody) as body:
            name = parts.find_model(body.model)
            is_stored = body.wants_store and self.store.is_enabled
            chat, callback = await self._tokenize_chat(body, is_stored)
        writer = ResponsesWriter(name, parts.texts, body.echo(is_stored), callback)
        return await parts.generation.respond_to_chat(request, chat, writer, bool(body.stream))

    async def count_tokens(self, request: Request) -> Response:
        async with self._parts.bodies.read(request, ResponsesBody) as body:
            self._parts.find_model(body.model)
            chat, _ = await self._tokenize_chat(body, False)
        return JSONResponse({"object": "response.input_tokens",
                             "input_tokens": len(chat.tokens)})

    async def _tokenize_chat(
        self, body: ResponsesBody, is_stored: bool
    ) -> tuple[TokenizedChat, StoreCallback]:
        """The callback stores the response. The items of the chat are freed after this."""
        async with self._readers:
            chat = await asyncio.to_thread(load_chat, body, self.store, is_stored)
        callback = chat.store_callback(self.store) if is_stored else discard_response
        tokens = await self._parts.generation.tokenize_chat(body.to_chat_request(chat.items))
        return tokens, callback

    # ---- stored responses --------------------------------------------------------------------

    async def retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream") == "true":
            raise BadParameter("stream: a stored response is given whole", hint="leave it away")
        return Response(self._entry(request).response, media_type="application/json")

    async def delete(self, request: Request) -> Response:
        entry = self._entry(request)
        self.store.delete(entry.id)
        return JSONResponse({"id": entry.id, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """The items that the response's own request added, page by page."""
        entry, query = self._entry(request), request.query_params
        items: list[Json] = await asyncio.to_thread(json.loads, entry.items)
        if query.get("order", "desc") != "asc":
            items.reverse()
        if (after := query.get("after")) is not None:
            at = next((k for k, item in enumerate(items) if item["id"] == after), len(items))
            items = items[at + 1 :]
        page = items[: _page_size(query.get("limit", str(_PAGE_ITEMS)))]
        return JSONResponse({
            "object": "list", "data": page, "has_more": len(page) < len(items),
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None})

    def _entry(self, request: Request) -> StoredResponse:
        name = request.path_params["id"]
        if (entry := self.store.get(name)) is None:
            raise HTTPException(404, f"Response with id '{name[:200]}' not found.")
        return entry


def _page_size(text: str) -> int:
    if text.isdecimal() and len(text) < 4 and 1 <= int(text) <= _MAX_PAGE_ITEMS:
        return int(text)
    raise BadParameter(f"limit is {text[:80]!r}", hint=f"a whole number of 1 to {_MAX_PAGE_ITEMS}")
