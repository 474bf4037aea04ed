"""Responses that are stored, so that later requests go on with them. They are in memory, and their
number and bytes are bounded: what was used longest ago goes first."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from ..error_responses import RefusedRequest
from ..response_writer import Json

MAX_BYTES = 256 << 20
_OF_ENTRY, _OF_ITEM = 1024, 256  # bytes, beside the texts
_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class StoredResponse:
    """As JSON: `items` that its request has added to the chat, and the `response`. A chain of
    `previous` responses has each text once."""

    id: str
    previous: str | None
    items: bytes
    response: bytes
    item_ids: Sequence[str]

    @property
    def size(self) -> int:
        return len(self.items) + len(self.response) + _OF_ITEM * len(self.item_ids) + _OF_ENTRY

    def chat_items(self) -> list[Json]:
        """Of its request, then of its answer."""
        items: list[Json] = json.loads(self.items)
        return items + list(json.loads(self.response)["output"])


def stored(response: Json, items: bytes, item_ids: Sequence[str]) -> StoredResponse:
    ids = [*item_ids, *(item["id"] for item in response["output"])]
    return StoredResponse(response["id"], response["previous_response_id"], items,
                          as_json(response), ids)


def as_json(value: object) -> bytes:
    return _WRITER.encode(value).encode()


class ResponseStore:
    """For any thread. `most` responses; none if it is 0."""

    def __init__(self, most: int, max_bytes: int = MAX_BYTES) -> None:
        self._most, self._max_bytes = most, max_bytes
        self._lock = Lock()
        self._entries = OrderedDict[str, StoredResponse]()  # by last use
        self._owners: dict[str, str] = {}  # of items: the response that has them
        self.bytes = 0

    @property
    def is_on(self) -> bool:
        return self._most > 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: StoredResponse) -> None:
        """One that is larger than the whole store is not kept."""
        with self._lock:
            self._entries[entry.id] = entry
            self.bytes += entry.size
            self._owners.update((item, entry.id) for item in entry.item_ids)
            while len(self._entries) > self._most or self.bytes > self._max_bytes:
                self._forget(next(iter(self._entries)))

    def get(self, id: str) -> StoredResponse | None:
        return self._entries.get(id)

    def delete(self, id: str) -> bool:
        with self._lock:
            found = id in self._entries
            if found:
                self._forget(id)
        return found

    def chain(self, id: str) -> list[StoredResponse]:
        """A response and those before it, oldest first. All of them count as used now."""
        found: list[StoredResponse] = []
        at: str | None = id
        with self._lock:
            while at is not None:
                if (entry := self._entries.get(at)) is None:
                    raise _gone(at)
                found.append(entry)
                at = entry.previous
            found.reverse()
            for entry in found:
                self._entries.move_to_end(entry.id)
        return found

    def owner(self, item: str) -> StoredResponse:
        """The response that an item belongs to."""
        with self._lock:
            if (entry := self._entries.get(self._owners.get(item, ""))) is not None:
                return entry
        raise RefusedRequest(400, f"Item with id '{item[:200]}' not found.", "item_not_found",
                             "input")

    def _forget(self, id: str) -> None:
        entry = self._entries.pop(id)
        self.bytes -= entry.size
        for item in entry.item_ids:
            if self._owners.get(item) == id:
                del self._owners[item]


def _gone(id: str) -> RefusedRequest:
    """In OpenAI's words: clients look for the code."""
    return RefusedRequest(400, f"Previous response with id '{id[:200]}' not found.",
                          "previous_response_not_found", "previous_response_id")
