"""The facts of an error response, and the JSON format that each API gives them.

Which status an exception gets is in `error_responses.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
_ANTHROPIC_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error",
                 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error"}


@dataclass(frozen=True)
class ErrorInfo:
    """`code` is OpenAI's code, if it has one. `param` names the wrong field. The request may
    succeed after `retry_s` seconds; None: unknown."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_s: int | None = None


ErrorFormat = Callable[[ErrorInfo], Json]


def as_openai(error: ErrorInfo) -> Json:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    if error.status == 429:
        kind = "requests"  # OpenAI's type for too many
    return {"error": {"message": error.message, "type": kind, "param": error.param,
                      "code": error.code}}


def as_anthropic(error: ErrorInfo) -> Json:
    """Clients recognise a prompt that is too long by the first words of the message."""
    status, message = error.status, error.message
    kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if error.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


_FORMATS: dict[str, ErrorFormat] = {"/v1/messages": as_anthropic}  # by prefix of the path


def error_format(path: str) -> ErrorFormat:
    """The format of the API that has this path."""
    for prefix, format in _FORMATS.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return format
    return as_openai
