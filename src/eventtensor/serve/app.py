"""The HTTP side: paths, keys, limits, and answers as JSON or as a stream of events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .. import __version__
from ..engine.llm import LLM
from .access_control import HostGuard, Key, with_origins
from .api_parts import ApiParts
from .body_reader import Bodies, BodyLimits
from .chat.chat_api import ChatApi
from .chat_format import ChatFormat
from .completions.completions_api import CompletionsApi
from .error_responses import HANDLERS
from .generation_service import Answering
from .messages.messages_api import MessagesApi
from .metrics import metrics_text
from .model_names import ModelNames
from .openapi import description
from .output_queue import Mailbox
from .request_ids import RequestIds
from .response_writer import Json
from .responses.response_store import ResponseStore
from .responses.responses_api import ResponsesApi
from .token_texts import TokenTexts
from .tokens_api import TokensApi
from .tracing import TracedRequests, Tracer
from .watchdog import Watch

Handler = Callable[[Request], Awaitable[Response]]
_PAGE = Path(__file__).parent / "page.html"
_OWN_ONLY = ("default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
             "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'")


@dataclass(frozen=True)
class AppOptions:
    """`name`: of the model, for clients; `aliases`: other names of it; `max_body`: bytes. Pages of
    `origins` may ask. `hosts`: names that a server at the loopback address is asked under; None
    where it is elsewhere. Up to `response_store` responses are stored. `tool_parser`,
    `reasoning_parser`: by name, or `auto`: by the chat template. Names of metrics begin with
    `metrics_prefix` and a colon. Spans of requests go to `otlp_endpoint`, a collector of
    OpenTelemetry."""

    name: str
    api_key: str | None = None
    max_body: int = 4 << 20
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    response_store: int = 1000
    tool_parser: str = "auto"
    reasoning_parser: str = "auto"
    aliases: tuple[str, ...] = ()
    metrics_prefix: str = "eventtensor"
    otlp_endpoint: str | None = None


def make_app(
    llm: LLM, options: AppOptions, watch: Watch, statuses: Counter[int]
) -> ASGIApp:
    """`statuses`: how many answers had which, counted here and by connections that refuse."""
    api = Api(llm, options, watch, statuses)
    tracer = None if options.otlp_endpoint is None else Tracer(options.otlp_endpoint, options.name)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        api.answering.mailbox = Mailbox()
        watching = asyncio.ensure_future(watch.run())
        yield
        watching.cancel()
        if tracer is not None:
            tracer.close()

    def route(path: str, handler: Handler, method: str, keyed: bool = True) -> Route:
        return Route(path, api.keyed(handler) if keyed else handler, methods=[method])

    app: ASGIApp = Starlette(lifespan=life, exception_handlers=HANDLERS, routes=[
        route("/v1/chat/completions", api.chat.create, "POST"),
        route("/v1/completions", api.completions.create, "POST"),
        route("/v1/responses", api.responses.create, "POST"),
        route("/v1/responses/input_tokens", api.responses.count_tokens, "POST"),
        route("/v1/responses/{id}", api.responses.retrieve, "GET"),
        route("/v1/responses/{id}", api.responses.delete, "DELETE"),
        route("/v1/responses/{id}/input_items", api.responses.input_items, "GET"),
        route("/v1/messages", api.messages.create, "POST"),
        route("/v1/messages/count_tokens", api.messages.count_tokens, "POST"),
        route("/v1/models", api.models, "GET"),
        route("/v1/models/{name:path}", api.one_model, "GET"),
        route("/tokenize", api.tokens.tokenize, "POST"),
        route("/detokenize", api.tokens.detokenize, "POST"),
        route("/tokenizer_info", api.tokens.describe, "GET"),
        route("/health", api.health, "GET", keyed=False),
        route("/metrics", api.metrics, "GET", keyed=False),
        route("/version", api.version, "GET", keyed=False),
        route("/openapi.json", api.openapi, "GET", keyed=False),
        route("/", api.page, "GET", keyed=False),
    ])
    if tracer is not None:
        app = TracedRequests(app, tracer)
    if options.hosts is not None:
        app = HostGuard(app, options.hosts)
    if options.origins:
        app = with_origins(app, options.origins)
    return RequestIds(app, statuses)


class Api:
    """All paths: those of each API, and those that tell of the model and the server."""

    def __init__(
        self, llm: LLM, options: AppOptions, watch: Watch, statuses: Counter[int]
    ) -> None:
        self._llm, self._options, self._watch = llm, options, watch
        self._statuses = statuses
        self._key = None if options.api_key is None else Key(options.api_key)
        self._names = ModelNames((options.name, *options.aliases))
        self._bodies = Bodies(BodyLimits.of(llm.context, options.max_body))
        tokenizer = llm.model.tokenizer
        format = None if tokenizer is None else ChatFormat.of(
            tokenizer, options.tool_parser, options.reasoning_parser,
            llm.engine.options.additional_properties)
        self.answering = Answering(llm, format)
        parts = ApiParts(self._bodies, self.answering, TokenTexts(tokenizer),
                         self._names.find)
        self.chat, self.completions = ChatApi(parts), CompletionsApi(parts)
        self.messages, self.tokens = MessagesApi(parts), TokensApi(parts, llm)
        self.responses = ResponsesApi(parts, ResponseStore(options.response_store))

    def keyed(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            if self._key is not None and not self._key.fits(request.headers.raw):
                raise HTTPException(401, "the API key is missing or wrong",
                                    {"WWW-Authenticate": "Bearer"})
            return await handler(request)

        return checked

    # ---- of the model and the server -----------------------------------------------------------

    async def models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [*map(self._model, self._names.all)]})

    async def one_model(self, request: Request) -> Response:
        return JSONResponse(self._model(self._names.find(request.path_params["name"])))

    def _model(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": self._watch.started,
                "owned_by": "eventtensor", "max_model_len": self._llm.context}

    async def health(self, _: Request) -> Response:
        trouble = self._watch.trouble
        return JSONResponse({"status": trouble or "ok"}, 503 if trouble else 200)

    async def metrics(self, _: Request) -> Response:
        text = metrics_text(self._llm.engine, self._options.name, self._options.metrics_prefix,
                            self._statuses)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(description(
            self._names.all, self._llm.model.config.vocab, __version__))

    async def page(self, _: Request) -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"),
                            headers={"Content-Security-Policy": _OWN_ONLY})
