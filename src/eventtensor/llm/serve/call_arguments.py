"""The arguments of tool calls that clients send back, as JSON text.

Requests must have whole JSON. An answer that was cut may be stored with less."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError, from_json


def _check_whole(text: str) -> str:
    """Templates expect parsed arguments. A model that sees cut ones writes such calls itself."""
    try:
        from_json(text or "{}")
    except ValueError as e:
        raise PydanticCustomError(
            "call_arguments",
            "the arguments of a call are JSON text, and these are cut or wrong: {why}",
            {"why": str(e)[:200]},
        ) from None
    return text


CallArguments = Annotated[str, AfterValidator(_check_whole)]


def parse_arguments(text: str) -> Any:
    """The parsed arguments, because templates format them themselves. Cut ones stay text."""
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
