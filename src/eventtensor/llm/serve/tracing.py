"""Records an OpenTelemetry span for each HTTP request that reaches the engine.

Attributes have the names of OpenTelemetry's GenAI conventions. A background thread of the SDK sends
spans and drops some under load. The engine measures the times; this module only reports them."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from ... import __version__
from ...errors import BadOption, MissingPackage
from .output_queue import RequestGroup

_PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
_ADDRESS = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")
_CLOSE_S = 5.0  # time to send the last spans
_PROPAGATED_HEADERS = (b"traceparent", b"tracestate")
_PARAMS = ("max_tokens", "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty",
           "seed")
TRACE_KEY = "eventtensor.trace"  # of the `RequestTrace` in the ASGI scope


@dataclass(frozen=True)
class RequestTrace:
    """The engine requests of one HTTP request. `choices` counts the answers to each prompt."""

    group: RequestGroup
    choices: int


def check_endpoint(endpoint: str) -> None:
    """Checks the address, and that the packages are installed, before the weights load."""
    if not _ADDRESS.fullmatch(endpoint):
        raise BadOption(f"otlp-endpoint is {endpoint[:200]!r}", hint="as http://localhost:4318")
    for package in _PACKAGES:
        try:
            import_module(package)
        except ModuleNotFoundError as e:
            raise MissingPackage(f"traces need {package}, which is not installed",
                                 hint="pip install 'eventtensor[trace]'") from e


class Tracer:
    """`model` is the model's name in spans."""

    def __init__(self, endpoint: str, model: str) -> None:
        check_endpoint(endpoint)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        base = endpoint.rstrip("/")
        url = f"{base}/v1/traces" if base.count("/") == 2 else endpoint
        resource = Resource.create({"service.name": "eventtensor"})  # if the environment has none
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url)))
        self._tracer = self._provider.get_tracer("eventtensor", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._kind, self._error, self._model = SpanKind.SERVER, StatusCode.ERROR, model

    def record_request(self, scope: Scope, trace: RequestTrace) -> None:
        """Records the span of a finished request."""
        group = trace.group
        propagated = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]
                   if name in _PROPAGATED_HEADERS}
        operation = "text_completion" if scope["path"] == "/v1/completions" else "chat"
        to_epoch, now = time.time() - time.monotonic(), time.monotonic()
        arrived = min(r.arrival_time_s for r in group.requests)
        found = self._attributes(trace, now - arrived)
        names = {"gen_ai.operation.name": operation, "gen_ai.request.id": scope["request_id"]}
        span = self._tracer.start_span(
            f"{operation} {self._model}", self._propagator.extract(propagated), self._kind,
            found | names, start_time=int((arrived + to_epoch) * 1e9))
        if group.error is not None:
            span.set_attribute("error.type", group.error.code)
            span.set_status(self._error, group.error.message)
        span.end(int((now + to_epoch) * 1e9))

    def close(self) -> None:
        """Sends the remaining spans, but does not wait long for a collector that hangs."""
        shutdown = threading.Thread(target=self._provider.shutdown, daemon=True)
        shutdown.start()
        shutdown.join(_CLOSE_S)

    def _attributes(self, trace: RequestTrace, whole_s: float) -> dict[str, Any]:
        """Times are those of the slowest answer. Each prompt counts once."""
        group, requests = trace.group, trace.group.requests
        params = requests[0].params
        found: dict[str, Any] = {
            "gen_ai.provider.name": "eventtensor",
            "gen_ai.request.model": self._model, "gen_ai.response.model": self._model,
            "gen_ai.request.choice.count": trace.choices,
            "gen_ai.usage.input_tokens":
                sum(r.num_prompt_tokens for r in requests) // trace.choices,
            "gen_ai.usage.output_tokens": sum(len(r.answer_tokens) for r in requests),
            "gen_ai.usage.cache_read.input_tokens": sum(r.num_cached_tokens for r in requests),
            "gen_ai.response.finish_reasons": [
                group.finishes.get(k, "cancelled") for k in range(len(requests))],
            "gen_ai.latency.e2e": whole_s,
        }
        for name in _PARAMS:
            if (value := getattr(params, name)) is not None:
                found[f"gen_ai.request.{name}"] = value
        if admitted := [r for r in requests if r.admission_time_s]:
            found["gen_ai.latency.time_in_queue"] = max(
                r.admission_time_s - r.arrival_time_s for r in admitted)
        if answered := [r for r in admitted if r.last_token_time_s]:
            found |= {
                "gen_ai.latency.time_to_first_token":
                    max(r.first_token_time_s - r.arrival_time_s for r in answered),
                "gen_ai.latency.time_in_model_prefill":
                    max(r.first_token_time_s - r.admission_time_s for r in answered),
                "gen_ai.latency.time_in_model_decode":
                    max(r.last_token_time_s - r.first_token_time_s for r in answered),
            }
        return found


class TracingMiddleware:
    """Records a span when the wrapped app leaves a `RequestTrace` in the scope."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            if (trace := scope.get(TRACE_KEY)) is not None:
                self._tracer.record_request(scope, trace)
