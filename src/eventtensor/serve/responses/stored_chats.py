"""The chat that a responses request goes on with: what is stored, and what it adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from ...errors import BadParameter
from ..response_writer import Json
from .response_store import ResponseStore, StoredResponse, as_json, stored
from .responses_body import ResponsesBody
from .responses_writer import Keep, new_id

_MAX_READ = 32 << 20  # bytes of the store for one request
_PREFIX = {"message": "msg", "function_call": "fc", "function_call_output": "fco",
           "reasoning": "rs"}


@dataclass(frozen=True)
class StoredChat:
    """`items` of the whole chat; `new`: those that this request adds, as the store keeps them."""

    items: list[Json]
    new: bytes
    new_ids: list[str]

    def keeper(self, store: ResponseStore) -> Keep:
        """Stores the response to this request."""
        return partial(_keep, store, self.new, self.new_ids)


def _keep(store: ResponseStore, new: bytes, new_ids: list[str], response: Json) -> None:
    store.put(stored(response, new, new_ids))


def load(body: ResponsesBody, store: ResponseStore, keeps: bool) -> StoredChat:
    """It reads JSON of up to `_MAX_READ` bytes, so it belongs into a thread. Items of which the
    store gets to know have an id."""
    previous = body.previous_response_id
    chain = [] if previous is None else store.chain(previous)
    new, reads = body.items(), list(chain)
    owners = {item["id"]: store.owner(item["id"])
              for item in new if item["type"] == "item_reference"}
    reads += {entry.id: entry for entry in owners.values()}.values()
    if (size := sum(entry.size for entry in reads)) > _MAX_READ:
        raise BadParameter(f"the stored chat has {size} bytes",
                           hint=f"at most {_MAX_READ}: send what matters of it as input")
    old = [item for entry in chain for item in entry.chat_items()]
    if owners:
        known = {item["id"]: item for item in _items_of(owners.values())}
        new = [known[item["id"]] if item["type"] == "item_reference" else item for item in new]
    if not keeps:
        return StoredChat(old + new, b"", [])
    new = [item if item["id"] else item | {"id": new_id(_PREFIX[item["type"]])} for item in new]
    return StoredChat(old + new, as_json(new), [item["id"] for item in new])


def _items_of(entries: Iterable[StoredResponse]) -> Iterable[Json]:
    """Each entry is read once."""
    for entry in {entry.id: entry for entry in entries}.values():
        yield from entry.chat_items()
