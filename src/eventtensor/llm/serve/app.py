"""The ASGI application: its routes, its middleware, and the paths about model and server.

Each API has its own package with bodies, paths and writer. `server.py` runs the application."""

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

from ... import __version__
from ..engine.llm import LLM
from .access_control import ApiKey, HostGuard, allow_origins
from .api_parts import ApiParts
from .body_reader import BodyLimits, RequestBodyReader
from .chat.chat_api import ChatApi
from .chat_format import ChatFormat
from .completions.completions_api import CompletionsApi
from .error_responses import HANDLERS
from .generation_service import GenerationService
from .messages.messages_api import MessagesApi
from .metrics import metrics_text
from .model_names import ModelNames
from .openapi import describe_server
from .output_queue import AsyncOutputQueue
from .request_ids import RequestIdMiddleware
from .response_writer import Json
from .responses.response_store import ResponseStore
from .responses.responses_api import ResponsesApi
from .token_texts import TokenTexts
from .tokens_api import TokensApi
from .tracing import Tracer, TracingMiddleware
from .watchdog import Watchdog

Handler = Callable[[Request], Awaitable[Response]]
_PAGE = Path(__file__).parent / "page.html"
_PAGE_POLICY = ("default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
                "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'")


@dataclass(frozen=True)
class AppOptions:
    """Clients call the model `name` or one of `aliases`. Browser pages of `origins` may send
    requests. A server at a loopback address answers to the host names `hosts`; None: to all.
    The response store holds up to `response_store` responses. A parser is named, or `auto`: the
    chat template decides. Metric names start with `metrics_prefix` and a colon. `otlp_endpoint` is
    an OpenTelemetry collector for request spans."""

    name: str
    api_key: str | None = None
    max_body_bytes: int = 4 << 20
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    response_store: int = 1000
    tool_parser: str = "auto"
    reasoning_parser: str = "auto"
    aliases: tuple[str, ...] = ()
    metrics_prefix: str = "eventtensor"
    otlp_endpoint: str | None = None


def make_app(
    llm: LLM, options: AppOptions, watchdog: Watchdog, statuses: Counter[int]
) -> ASGIApp:
    """`statuses` counts responses by status code; connections count those that they refuse."""
    api = Api(llm, options, watchdog, statuses)
    tracer = None if options.otlp_endpoint is None else Tracer(options.otlp_endpoint, options.name)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        api.generation.outputs = AsyncOutputQueue()
        watch = asyncio.ensure_future(watchdog.run())
        yield
        watch.cancel()
        if tracer is not None:
            tracer.close()

    def route(path: str, handler: Handler, method: str, needs_key: bool = True) -> Route:
        return Route(path, api.require_key(handler) if needs_key else handler, methods=[method])

    app: ASGIApp = Starlette(lifespan=lifespan, exception_handlers=HANDLERS, routes=[
        route("/v1/chat/completions", api.chat.create, "POST"),
        route("/v1/completions", api.completions.create, "POST"),
        route("/v1/responses", api.responses.create, "POST"),
        route("/v1/responses/input_tokens", api.responses.count_tokens, "POST"),
        route("/v1/responses/{id}", api.responses.retrieve, "GET"),
        route("/v1/responses/{id}", api.responses.delete, "DELETE"),
        route("/v1/responses/{id}/input_items", api.responses.input_items, "GET"),
        route("/v1/messages", api.messages.create, "POST"),
        route("/v1/messages/count_tokens", api.messages.count_tokens, "POST"),
        route("/v1/models", api.list_models, "GET"),
        route("/v1/models/{name:path}", api.retrieve_model, "GET"),
        route("/tokenize", api.tokens.tokenize, "POST"),
        route("/detokenize", api.tokens.detokenize, "POST"),
        route("/tokenizer_info", api.tokens.describe, "GET"),
        route("/health", api.health, "GET", needs_key=False),
        route("/metrics", api.metrics, "GET", needs_key=False),
        route("/version", api.version, "GET", needs_key=False),
        route("/openapi.json", api.openapi, "GET", needs_key=False),
        route("/", api.page, "GET", needs_key=False),
    ])
    if tracer is not None:
        app = TracingMiddleware(app, tracer)
    if options.hosts is not None:
        app = HostGuard(app, options.hosts)
    if options.origins:
        app = allow_origins(app, options.origins)
    return RequestIdMiddleware(app, statuses)


class Api:
    """The handlers of all paths. Each API class handles its own."""

    def __init__(
        self, llm: LLM, options: AppOptions, watchdog: Watchdog, statuses: Counter[int]
    ) -> None:
        self._llm, self._options, self._watchdog = llm, options, watchdog
        self._statuses = statuses
        self._key = None if options.api_key is None else ApiKey(options.api_key)
        self._names = ModelNames((options.name, *options.aliases))
        limits = BodyLimits.for_context(llm.max_model_len, options.max_body_bytes)
        self._bodies = RequestBodyReader(limits)
        tokenizer = llm.model.tokenizer
        format = None if tokenizer is None else ChatFormat.for_tokenizer(
            tokenizer, options.tool_parser, options.reasoning_parser,
            llm.engine.options.additional_properties)
        self.generation = GenerationService(llm, format)
        parts = ApiParts(self._bodies, self.generation, TokenTexts(tokenizer),
                         self._names.find)
        self.chat, self.completions = ChatApi(parts), CompletionsApi(parts)
        self.messages, self.tokens = MessagesApi(parts), TokensApi(parts, llm)
        self.responses = ResponsesApi(parts, ResponseStore(options.response_store))

    def require_key(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            if self._key is not None and not self._key.matches(request.headers.raw):
                raise HTTPException(401, "the API key is missing or wrong",
                                    {"WWW-Authenticate": "Bearer"})
            return await handler(request)

        return checked

    # ---- the model and the server --------------------------------------------------------------

    async def list_models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [*map(self._model, self._names.all)]})

    async def retrieve_model(self, request: Request) -> Response:
        return JSONResponse(self._model(self._names.find(request.path_params["name"])))

    def _model(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": self._watchdog.start_time,
                "owned_by": "eventtensor", "max_model_len": self._llm.max_model_len}

    async def health(self, _: Request) -> Response:
        trouble = self._watchdog.trouble
        return JSONResponse({"status": trouble or "ok"}, 503 if trouble else 200)

    async def metrics(self, _: Request) -> Response:
        text = metrics_text(self._llm.engine, self._options.name, self._options.metrics_prefix,
                            self._statuses)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(describe_server(
            self._names.all, self._llm.model.config.vocab, __version__))

    async def page(self, _: Request) -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"),
                            headers={"Content-Security-Policy": _PAGE_POLICY})
