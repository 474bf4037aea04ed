"""The base of all user errors, and the catalogue that docs/errors.md is made from."""

from __future__ import annotations

from typing import ClassVar

from ..source_location import user_place


class EventTensorError(Exception):
    """Base of all user errors; prints as `code: cause`, place, hint."""

    code: ClassVar[str] = "ET000"
    title: ClassVar[str] = "an eventtensor error"
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.place = place if place is not None else user_place()
        self.hint = hint if hint is not None else self.default_hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}", f"  at {self.place}"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def catalogue() -> list[type[EventTensorError]]:
    """All error classes, by code."""
    found = EventTensorError.__subclasses__()
    for cls in found:
        found += cls.__subclasses__()
    return sorted(found, key=lambda c: c.code)
