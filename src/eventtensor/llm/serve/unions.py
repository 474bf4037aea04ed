"""Helpers for tagged unions in request bodies, so that pydantic reports errors of one member only.

Tags start with `~`, and `field_path` removes them from the place of an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Discriminator


def type_tag(value: Any) -> str | None:
    """The `type` of an object, as a tag."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"~{kind}" if isinstance(kind, str) else None


def _text_or_other(value: Any) -> str:
    return "~text" if isinstance(value, str) else "~other"


TEXT_OR_OTHER = Discriminator(_text_or_other)  # tags: "~text" and "~other"


def field_path(loc: Iterable[int | str]) -> list[str]:
    """The place of an error, in the client's terms."""
    return [part for part in map(str, loc) if not part.startswith("~")]
