"""What is told of an error, and the forms that APIs give it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
_OF_ANTHROPIC = {401: "authentication_error", 403: "permission_error", 404: "not_found_error",
                 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error"}


@dataclass(frozen=True)
class Failure:
    """`code` is one of OpenAI's, or None where it has none for this. `param`: the field that is
    wrong. After `retry_s` seconds the same request may succeed; None: nobody knows when."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_s: int | None = None


ErrorForm = Callable[[Failure], Json]


def as_openai(failure: Failure) -> Json:
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    if failure.status == 429:
        kind = "requests"  # there are too many of them
    return {"error": {"message": failure.message, "type": kind, "param": failure.param,
                      "code": failure.code}}


def as_anthropic(failure: Failure) -> Json:
    """Its clients know a prompt that is too long by how the message begins."""
    status, message = failure.status, failure.message
    kind = _OF_ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if failure.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


_FORMS: dict[str, ErrorForm] = {"/v1/messages": as_anthropic}  # by begins of paths


def form_of(path: str) -> ErrorForm:
    """The form of the API that this path belongs to."""
    for begin, form in _FORMS.items():
        if path == begin or path.startswith(f"{begin}/"):
            return form
    return as_openai
