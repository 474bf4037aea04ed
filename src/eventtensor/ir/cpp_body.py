"""A custom C++ body: source for a CPU in place of the code that a Python body would give."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BadCall
from .body_headers import Headers, resolve_headers


@dataclass(frozen=True, slots=True)
class CppBody:
    """The body of a task for a CPU. `headers`: files that the source needs, by their paths; they
    stand before it, and are a part of the key of what is compiled."""

    source: str
    headers: Headers = ()

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not self.source.strip():
            raise BadCall("a C++ body must have source text")
        object.__setattr__(self, "headers", resolve_headers(self.headers, BadCall))
