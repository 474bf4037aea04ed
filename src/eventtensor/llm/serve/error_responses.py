"""Maps exceptions to HTTP status codes and error responses.

`HANDLERS` is the table for Starlette. The JSON of each API is in `error_formats.py`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...errors import (
    BadChat,
    BadGrammar,
    BadParameter,
    BadPrompt,
    BadTool,
    EngineStopped,
    EventTensorError,
    PromptTooLong,
    QueueFull,
    StepStuck,
    UnsupportedTokenizer,
)
from .error_formats import ErrorInfo, error_format
from .output_queue import ClientDisconnected
from .unions import field_path

_STATUS: dict[type[EventTensorError], int] = {
    BadParameter: 400, BadPrompt: 400, BadChat: 400, BadGrammar: 400, UnsupportedTokenizer: 400,
    BadTool: 400,
    QueueFull: 429, EngineStopped: 503, StepStuck: 503,
}
_CODES: dict[int, str] = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_FIELD_CODES = ("unknown_parameter", "unsupported_parameter", "unsupported_value")
_BODY_CODES = {"missing": "missing_required_parameter", "json_invalid": None,
               **{code: code for code in _FIELD_CODES}}
_MAX_LISTED = 32  # a body with more errors gets only their number
_MAX_CHARACTERS = 1000  # of client text that an error repeats


class RefusedRequest(HTTPException):
    """A refusal with its own OpenAI code."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(status, message)
        self.code, self.param = code, param


def error_response(
    status: int, message: str, param: str | None = None, path: str = ""
) -> JSONResponse:
    return render_error(ErrorInfo(status, message, _CODES.get(status), param), path)


def render_error(info: ErrorInfo, path: str) -> JSONResponse:
    """The response in the format of the API that has this path."""
    headers = {} if info.retry_s is None else {"Retry-After": str(info.retry_s)}
    return JSONResponse(error_format(path)(info), info.status, headers)


def error_info(error: Exception) -> ErrorInfo:
    if not isinstance(error, EventTensorError):
        return ErrorInfo(500, f"{type(error).__name__} inside the server")
    status = http_status(error)
    code = "context_length_exceeded" if isinstance(error, PromptTooLong) else _CODES.get(status)
    retry_s = error.retry_s if isinstance(error, QueueFull) else None
    return ErrorInfo(status, error_text(error), code, retry_s=retry_s)


def http_status(error: EventTensorError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def error_text(error: EventTensorError) -> str:
    message = error.message
    if len(message) > _MAX_CHARACTERS:
        message = f"{message[:_MAX_CHARACTERS]} .."
    return f"{error.code}: {message}" + (f" ({error.hint})" if error.hint else "")


# ---- handlers --------------------------------------------------------------------------------


async def handle_user_error(request: Request, error: Exception) -> Response:
    return render_error(error_info(error), request.url.path)


async def handle_body_error(request: Request, error: Exception) -> Response:
    """Reports the first error of a body, or the number of errors if there are many."""
    assert isinstance(error, ValidationError)
    if error.error_count() > _MAX_LISTED:
        message = f"the body has {error.error_count()} fields that are unknown or wrong"
        return error_response(400, message, path=request.url.path)
    first = error.errors(include_url=False, include_input=False)[0]
    extra = first.get("ctx", {}).get("field")  # the field that the model refuses
    loc = first["loc"] if extra is None else (*first["loc"], extra)
    place = ".".join(p[:_MAX_CHARACTERS] for p in field_path(loc))
    message = first["msg"] if not place else f"{place}: {first['msg']}"
    return render_error(ErrorInfo(400, message, _body_code(first["type"]), place or None),
                       request.url.path)


def _body_code(kind: str) -> str | None:
    """OpenAI's code for an error type of pydantic."""
    return _BODY_CODES.get(kind, "invalid_type" if kind.endswith("_type") else "invalid_value")


async def handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, param = _CODES.get(error.status_code), None
    if isinstance(error, RefusedRequest):
        code, param = error.code, error.param
    found = render_error(ErrorInfo(error.status_code, error.detail, code, param), request.url.path)
    found.headers.update(error.headers or {})
    return found


async def handle_disconnect(_: Request, error: Exception) -> Response:
    """The client has left, so the response is empty."""
    return Response(status_code=499)


async def handle_bug(request: Request, error: Exception) -> Response:
    return render_error(error_info(error), request.url.path)


HANDLERS: dict[Any, Any] = {
    EventTensorError: handle_user_error, ValidationError: handle_body_error,
    HTTPException: handle_http_error, ClientDisconnected: handle_disconnect, Exception: handle_bug,
}
