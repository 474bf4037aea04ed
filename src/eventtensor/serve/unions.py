"""Unions in bodies whose kind is clear before they are read, so that an error is of that kind. Tags
of kinds begin with `~`: they are no part of the place of an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Discriminator


def type_tag(value: Any) -> str | None:
    """What an object says that it is, as a tag."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"~{kind}" if isinstance(kind, str) else None


def _text_or_other(value: Any) -> str:
    return "~text" if isinstance(value, str) else "~other"


TEXT_OR_OTHER = Discriminator(_text_or_other)  # of types with the tags "~text" and "~other"


def field_path(loc: Iterable[int | str]) -> list[str]:
    """Of an error, as the client knows it."""
    return [part for part in map(str, loc) if not part.startswith("~")]
