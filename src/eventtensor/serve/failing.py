"""Errors as answers: OpenAI's shape, and which status each cause has."""

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
    QueueFull,
    StepStuck,
    UnsupportedTokenizer,
)
from .answers import ClientGone

_STATUS: dict[type[EventTensorError], int] = {
    BadParameter: 400, BadPrompt: 400, BadChat: 400, BadGrammar: 400, UnsupportedTokenizer: 400,
    BadTool: 400,
    QueueFull: 429, EngineStopped: 503, StepStuck: 503,
}
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
          429: "rate_limit_error", 503: "service_unavailable"}
_RETRY_S = {429: 1, 503: 5}
_TOLD = 32  # errors of one body; more are only counted
_LONGEST = 1000  # characters of what a client sent that an error says again


def error_json(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def error_response(status: int, message: str, param: str | None = None) -> JSONResponse:
    headers = {"Retry-After": str(_RETRY_S[status])} if status in _RETRY_S else {}
    return JSONResponse(error_json(status, message, param), status, headers)


def status_of(error: EventTensorError) -> int:
    return _STATUS.get(type(error), 500)


def text_of(error: EventTensorError) -> str:
    message = error.message if len(error.message) <= _LONGEST else f"{error.message[:_LONGEST]} .."
    return f"{error.code}: {message}" + (f" ({error.hint})" if error.hint else "")


# ---- handlers --------------------------------------------------------------------------------


async def of_user(_: Request, error: Exception) -> Response:
    assert isinstance(error, EventTensorError)
    return error_response(status_of(error), text_of(error))


async def of_body(_: Request, error: Exception) -> Response:
    """The first thing that is wrong with a body. Where much is, it is only counted."""
    assert isinstance(error, ValidationError)
    if error.error_count() > _TOLD:
        return error_response(400, f"the body has {error.error_count()} fields that are unknown or "
                              "wrong")
    first = error.errors(include_url=False, include_input=False)[0]
    extra = first.get("ctx", {}).get("field")  # a field that the body's model does not have
    loc = first["loc"] if extra is None else (*first["loc"], extra)
    place = ".".join(str(p)[:_LONGEST] for p in loc)
    message = first["msg"] if not place else f"{place}: {first['msg']}"
    return error_response(400, message, place or None)


async def of_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = error_response(error.status_code, error.detail)
    found.headers.update(error.headers or {})
    return found


async def of_client(_: Request, error: Exception) -> Response:
    """Nobody reads it."""
    return Response(status_code=499)


async def of_bug(_: Request, error: Exception) -> Response:
    return error_response(500, f"{type(error).__name__} inside the server")


HANDLERS: dict[Any, Any] = {
    EventTensorError: of_user, ValidationError: of_body, HTTPException: of_http,
    ClientGone: of_client, Exception: of_bug,
}
