"""Tables of handlers: what one part of the compiler does for each op.

The interpreter and each back end register a handler for every op of ir/ops.py. `require_all` at the
end of their module refuses a gap when the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from ..errors import OpWithoutEntry

Key = TypeVar("Key")
Handler = TypeVar("Handler")


class HandlerTable(Generic[Key, Handler]):
    """Handlers by key. `name` is the part of the compiler, and its file, in messages."""

    def __init__(self, name: str, keys: Collection[Key]) -> None:
        self.name = name
        self._keys = keys
        self._handlers: dict[Key, Handler] = {}

    def add(self, handler: Handler, *keys: Key) -> Handler:
        for key in keys:
            if key not in self._keys:
                raise OpWithoutEntry(f"{self.name} handles {_text(key)}, which the table lacks")
            if key in self._handlers:
                raise OpWithoutEntry(f"{self.name} handles {_text(key)} twice")
            self._handlers[key] = handler
        return handler

    def register(self, *keys: Key) -> Callable[[Handler], Handler]:
        """A decorator that registers a function for these keys."""
        return lambda handler: self.add(handler, *keys)

    def share(self, other: HandlerTable[Key, Handler], *keys: Key) -> None:
        """Take the handlers of another table for these keys."""
        for key in keys:
            self.add(other[key], key)

    def __getitem__(self, key: Key) -> Handler:
        return self._handlers[key]

    def require_all(self) -> None:
        """Called once all handlers are registered."""
        missing = [_text(key) for key in self._keys if key not in self._handlers]
        if missing:
            raise OpWithoutEntry(f"{self.name} has no entry for {', '.join(missing)}")


def _text(key: object) -> str:
    return f"'{key.__name__ if isinstance(key, type) else key}'"
