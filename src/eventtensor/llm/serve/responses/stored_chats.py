"""Loads the chat that a responses request continues: the stored items and its new ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from ....errors import BadParameter
from ..response_writer import Json
from .response_store import ResponseStore, StoredResponse, as_json, make_entry
from .responses_body import ResponsesBody
from .responses_writer import StoreCallback, new_id

_MAX_READ_BYTES = 32 << 20  # of the store, for one request
_PREFIX = {"message": "msg", "function_call": "fc", "function_call_output": "fco",
           "reasoning": "rs"}


@dataclass(frozen=True)
class StoredChat:
    """`items` are those of the whole chat. `new` is the JSON of this request's own items."""

    items: list[Json]
    new: bytes
    new_ids: list[str]

    def store_callback(self, store: ResponseStore) -> StoreCallback:
        """A function that stores the response to this request."""
        return partial(_store, store, self.new, self.new_ids)


def _store(store: ResponseStore, new: bytes, new_ids: list[str], response: Json) -> None:
    store.put(make_entry(response, new, new_ids))


def load_chat(body: ResponsesBody, store: ResponseStore, is_stored: bool) -> StoredChat:
    """Parses JSON of up to `_MAX_READ_BYTES`, so callers use a thread. Items get an id if the
    response will be stored."""
    previous = body.previous_response_id
    chain = [] if previous is None else store.chain(previous)
    new, reads = body.items(), list(chain)
    owners = {item["id"]: store.find_owner(item["id"])
              for item in new if item["type"] == "item_reference"}
    reads += {entry.id: entry for entry in owners.values()}.values()
    if (size := sum(entry.num_bytes for entry in reads)) > _MAX_READ_BYTES:
        raise BadParameter(f"the stored chat has {size} bytes",
                           hint=f"at most {_MAX_READ_BYTES}: send what matters of it as input")
    old = [item for entry in chain for item in entry.chat_items()]
    if owners:
        by_id = {item["id"]: item for item in _read_items(owners.values())}
        new = [by_id[item["id"]] if item["type"] == "item_reference" else item for item in new]
    if not is_stored:
        return StoredChat(old + new, b"", [])
    new = [item if item["id"] else item | {"id": new_id(_PREFIX[item["type"]])} for item in new]
    return StoredChat(old + new, as_json(new), [item["id"] for item in new])


def _read_items(entries: Iterable[StoredResponse]) -> Iterable[Json]:
    """Reads each entry once."""
    for entry in {entry.id: entry for entry in entries}.values():
        yield from entry.chat_items()
