"""Stores responses in memory, so that later requests can continue their chats.

The store bounds the number of responses and their bytes, and evicts the least recently used one.
`stored_chats.py` reads chats from it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from ..error_responses import RefusedRequest
from ..response_writer import Json

MAX_BYTES = 256 << 20
_ENTRY_BYTES, _ITEM_BYTES = 1024, 256  # overhead beside the texts
_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class StoredResponse:
    """`items` are the JSON items that the request added to the chat. `response` is JSON too. A
    chain of `previous` responses contains each text once."""

    id: str
    previous: str | None
    items: bytes
    response: bytes
    item_ids: Sequence[str]

    @property
    def num_bytes(self) -> int:
        texts = len(self.items) + len(self.response)
        return texts + _ITEM_BYTES * len(self.item_ids) + _ENTRY_BYTES

    def chat_items(self) -> list[Json]:
        """The items of the request, then those of the answer."""
        items: list[Json] = json.loads(self.items)
        return items + list(json.loads(self.response)["output"])


def make_entry(response: Json, items: bytes, item_ids: Sequence[str]) -> StoredResponse:
    ids = [*item_ids, *(item["id"] for item in response["output"])]
    return StoredResponse(response["id"], response["previous_response_id"], items,
                          as_json(response), ids)


def as_json(value: object) -> bytes:
    return _WRITER.encode(value).encode()


class ResponseStore:
    """Thread-safe. `max_responses` of 0 disables the store."""

    def __init__(self, max_responses: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses, self._max_bytes = max_responses, max_bytes
        self._lock = Lock()
        self._entries = OrderedDict[str, StoredResponse]()  # least recently used first
        self._owners: dict[str, str] = {}  # item id -> response id
        self.num_bytes = 0

    @property
    def is_enabled(self) -> bool:
        return self._max_responses > 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: StoredResponse) -> None:
        """An entry that is larger than the store is evicted at once."""
        with self._lock:
            self._entries[entry.id] = entry
            self.num_bytes += entry.num_bytes
            self._owners.update((item, entry.id) for item in entry.item_ids)
            while len(self._entries) > self._max_responses or self.num_bytes > self._max_bytes:
                self._evict(next(iter(self._entries)))

    def get(self, id: str) -> StoredResponse | None:
        return self._entries.get(id)

    def delete(self, id: str) -> bool:
        with self._lock:
            found = id in self._entries
            if found:
                self._evict(id)
        return found

    def chain(self, id: str) -> list[StoredResponse]:
        """A response and its predecessors, oldest first. All of them count as used now."""
        found: list[StoredResponse] = []
        at: str | None = id
        with self._lock:
            while at is not None:
                if (entry := self._entries.get(at)) is None:
                    raise _missing(at)
                found.append(entry)
                at = entry.previous
            found.reverse()
            for entry in found:
                self._entries.move_to_end(entry.id)
        return found

    def find_owner(self, item: str) -> StoredResponse:
        """The response that an item belongs to."""
        with self._lock:
            if (entry := self._entries.get(self._owners.get(item, ""))) is not None:
                return entry
        raise RefusedRequest(400, f"Item with id '{item[:200]}' not found.", "item_not_found",
                             "input")

    def _evict(self, id: str) -> None:
        entry = self._entries.pop(id)
        self.num_bytes -= entry.num_bytes
        for item in entry.item_ids:
            if self._owners.get(item) == id:
                del self._owners[item]


def _missing(id: str) -> RefusedRequest:
    """OpenAI's message and code, because clients look for them."""
    return RefusedRequest(400, f"Previous response with id '{id[:200]}' not found.",
                          "previous_response_not_found", "previous_response_id")
