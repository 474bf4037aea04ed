"""The OpenAPI description of the server. Bodies come from the pydantic models, paths from the
tables of this file. The routes are in `app.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from .chat.chat_body import ChatBody
from .completions.completion_body import CompletionBody
from .messages.messages_body import CountBody, MessagesBody
from .responses.responses_body import ResponsesBody
from .tokenize_bodies import DetokenizeBody, TokenizeBody

Json = dict[str, Any]
_TEMPLATE = "#/components/schemas/{model}"
BODIES = {
    "/v1/chat/completions": (ChatBody, "Answers a chat, whole or as a stream of events."),
    "/v1/completions": (CompletionBody, "Continues a text, whole or as a stream of events."),
    "/v1/responses": (ResponsesBody, "Answers items of a chat, whole or as a stream of events."),
    "/v1/responses/input_tokens": (ResponsesBody, "How many tokens such a request has."),
    "/v1/messages": (MessagesBody, "Answers a chat in Anthropic's form, whole or as events."),
    "/v1/messages/count_tokens": (CountBody, "How many tokens such a request has."),
    "/tokenize": (TokenizeBody, "The tokens of a text or a chat."),
    "/detokenize": (DetokenizeBody, "The text of tokens."),
}
_GETS = {
    "/v1/models": ("The model, under the name that requests give.", "application/json"),
    "/v1/models/{name}": ("The same, if that is its name.", "application/json"),
    "/v1/responses/{id}": ("A response that is stored.", "application/json"),
    "/v1/responses/{id}/input_items": ("The items that its request added to the chat.",
                                       "application/json"),
    "/health": ("Whether the server can answer; 503 if not.", "application/json"),
    "/metrics": ("Counts and times, for Prometheus.", "text/plain"),
    "/tokenizer_info": ("Special tokens and the chat template.", "application/json"),
    "/version": ("The version of this software.", "application/json"),
    "/openapi.json": ("This description.", "application/json"),
    "/": ("A page to try the model in a browser.", "text/html"),
}
_RANGES = {"temperature": (0, 100), "top_p": (1e-6, 1), "min_p": (0, 1), "top_k": (0, 1 << 30),
           "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2), "seed": (0, 1 << 62),
           "repetition_penalty": (1e-3, 10), "max_tokens": (1, 1 << 30), "logprobs": (0, 20),
           "prompt_logprobs": (0, 20),
           "top_logprobs": (0, 20), "max_completion_tokens": (1, 1 << 30)}
_WITHOUT_KEY = ("/health", "/metrics", "/version", "/openapi.json", "/")
_REFUSALS = {"400": "the request is invalid", "404": "no such model",
             "408": "the body did not arrive in time", "413": "too long", "415": "no JSON",
             "429": "too many requests; Retry-After says when there may be room, if that is known"}
_GET_REFUSALS = {"404": "no such model"}
_ALWAYS = {"401": "the API key is missing or wrong", "503": "the server cannot answer now"}


def describe_server(names: Sequence[str], vocab: int, version: str) -> Json:
    """Describes a server whose model has these names and `vocab` tokens."""
    models = [(body, "validation") for body, _ in BODIES.values()]
    _, found = models_json_schema(models, ref_template=_TEMPLATE)  # type: ignore[arg-type]
    for body, _ in BODIES.values():
        fields = found["$defs"][body.__name__]["properties"]
        fields["model"] = {"enum": list(names)}
        for name in _RANGES.keys() & fields.keys():
            _bound(fields[name], *_RANGES[name])
        for name in ("prompt", "tokens", "stop_token_ids"):
            _bound(fields.get(name, {}), 0, vocab - 1)
    posts = {path: {"post": _post(path, body.__name__, summary)}
             for path, (body, summary) in BODIES.items()}
    gets = {path: {"get": _get(path, summary, kind)} for path, (summary, kind) in _GETS.items()}
    gets["/v1/models/{name}"]["get"] |= {"parameters": [
        {"name": "name", "in": "path", "required": True, "schema": {"enum": list(names)}}]}
    for path, ways in gets.items():
        if "{id}" in path:
            ways["get"] |= {"parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}
    stored = gets["/v1/responses/{id}"]
    stored["delete"] = stored["get"] | {"summary": "Forgets a response that is stored."}
    key = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0", "info": {"title": "eventtensor", "version": version},
        "paths": posts | gets,
        "components": {"schemas": found["$defs"], "securitySchemes": {"key": key}},
    }


def _bound(schema: Json, low: float, high: float) -> None:
    """Bounds all numbers of a schema, at any depth."""
    if schema.get("type") in ("integer", "number"):
        schema |= {"minimum": low, "maximum": high}
    for inner in (*schema.get("anyOf", ()), schema.get("items", {})):
        if inner:
            _bound(inner, low, high)


def _post(path: str, body: str, summary: str) -> Json:
    content = {"application/json": {"schema": {"$ref": _TEMPLATE.format(model=body)}}}
    more = ("text/event-stream",) if path.startswith("/v1/") else ()
    kinds = ("application/json", *more)
    return {"summary": summary, "requestBody": {"required": True, "content": content},
            "responses": _responses(kinds, _REFUSALS | _ALWAYS), "security": [{"key": []}, {}]}


def _get(path: str, summary: str, kind: str) -> Json:
    needs_key = path not in _WITHOUT_KEY
    return {"summary": summary, "responses": _responses((kind,), _GET_REFUSALS | _ALWAYS),
            "security": [{"key": []}, {}] if needs_key else []}


def _responses(kinds: tuple[str, ...], refusals: dict[str, str]) -> Json:
    success: Json = {"description": "the answer", "content": {kind: {} for kind in kinds}}
    error = {"application/json": {"schema": {
        "type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}}}
    return {"200": success} | {code: {"description": why, "content": error}
                            for code, why in refusals.items()}
