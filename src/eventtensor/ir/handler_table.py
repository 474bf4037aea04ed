"""Layers: what one part of the compiler does for each entry of a table.

The interpreter and each back end register a handler for every op (ir/ops.py). A layer checks at the
end of its module that none is missing, so a gap shows when the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from ..errors import OpWithoutEntry

Key = TypeVar("Key")
Handler = TypeVar("Handler")


class Layer(Generic[Key, Handler]):
    """Handlers by key. `name` says in messages which layer it is, and where."""

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

    def on(self, *keys: Key) -> Callable[[Handler], Handler]:
        """A decorator that registers a function for these keys."""
        return lambda handler: self.add(handler, *keys)

    def share(self, other: Layer[Key, Handler], *keys: Key) -> None:
        """Take the handlers that another layer has for these keys."""
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
