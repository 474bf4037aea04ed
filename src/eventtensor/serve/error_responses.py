"""Which status and code each cause of an error has, and errors as answers."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import (
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
from .error_formats import Failure, form_of
from .output_queue import ClientGone
from .unions import place_of

_STATUS: dict[type[EventTensorError], int] = {
    BadParameter: 400, BadPrompt: 400, BadChat: 400, BadGrammar: 400, UnsupportedTokenizer: 400,
    BadTool: 400,
    QueueFull: 429, EngineStopped: 503, StepStuck: 503,
}
_CODES: dict[int, str] = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_OWN_CODES = ("unknown_parameter", "unsupported_parameter", "unsupported_value")
_BODY_CODES = {"missing": "missing_required_parameter", "json_invalid": None,
               **{code: code for code in _OWN_CODES}}
_TOLD = 32  # errors of one body; more are only counted
_LONGEST = 1000  # characters of what a client sent that an error says again


class RefusedRequest(HTTPException):
    """With a code of OpenAI's of its own."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(status, message)
        self.code, self.param = code, param


def error_response(
    status: int, message: str, param: str | None = None, path: str = ""
) -> JSONResponse:
    return response_of(Failure(status, message, _CODES.get(status), param), path)


def response_of(failure: Failure, path: str) -> JSONResponse:
    """In the form of the API that has this path."""
    headers = {} if failure.retry_s is None else {"Retry-After": str(failure.retry_s)}
    return JSONResponse(form_of(path)(failure), failure.status, headers)


def failure_of(error: Exception) -> Failure:
    if not isinstance(error, EventTensorError):
        return Failure(500, f"{type(error).__name__} inside the server")
    status = status_of(error)
    code = "context_length_exceeded" if isinstance(error, PromptTooLong) else _CODES.get(status)
    retry_s = error.retry_s if isinstance(error, QueueFull) else None
    return Failure(status, text_of(error), code, retry_s=retry_s)


def status_of(error: EventTensorError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def text_of(error: EventTensorError) -> str:
    message = error.message if len(error.message) <= _LONGEST else f"{error.message[:_LONGEST]} .."
    return f"{error.code}: {message}" + (f" ({error.hint})" if error.hint else "")


# ---- handlers --------------------------------------------------------------------------------


async def of_user(request: Request, error: Exception) -> Response:
    return response_of(failure_of(error), request.url.path)


async def of_body(request: Request, error: Exception) -> Response:
    """The first thing that is wrong with a body. Where much is, it is only counted."""
    assert isinstance(error, ValidationError)
    if error.error_count() > _TOLD:
        message = f"the body has {error.error_count()} fields that are unknown or wrong"
        return error_response(400, message, path=request.url.path)
    first = error.errors(include_url=False, include_input=False)[0]
    extra = first.get("ctx", {}).get("field")  # a field that the body's model does not have
    loc = first["loc"] if extra is None else (*first["loc"], extra)
    place = ".".join(p[:_LONGEST] for p in place_of(loc))
    message = first["msg"] if not place else f"{place}: {first['msg']}"
    return response_of(Failure(400, message, _body_code(first["type"]), place or None),
                       request.url.path)


def _body_code(kind: str) -> str | None:
    """For a kind of error of pydantic's."""
    return _BODY_CODES.get(kind, "invalid_type" if kind.endswith("_type") else "invalid_value")


async def of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, param = _CODES.get(error.status_code), None
    if isinstance(error, RefusedRequest):
        code, param = error.code, error.param
    found = response_of(Failure(error.status_code, error.detail, code, param), request.url.path)
    found.headers.update(error.headers or {})
    return found


async def of_client(_: Request, error: Exception) -> Response:
    """Nobody reads it."""
    return Response(status_code=499)


async def of_bug(request: Request, error: Exception) -> Response:
    return response_of(failure_of(error), request.url.path)


HANDLERS: dict[Any, Any] = {
    EventTensorError: of_user, ValidationError: of_body, HTTPException: of_http,
    ClientGone: of_client, Exception: of_bug,
}
