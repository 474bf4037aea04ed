"""`eventtensor serve`: a model, an engine and a server, from what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import environment
from ..engine.llm import LLM
from ..serve.access_control import is_loopback
from ..serve.app import AppOptions
from ..serve.chat_format import check_parsers
from ..serve.listen_sockets import bind
from ..serve.metrics import check_prefix
from ..serve.server import ServeOptions, serve
from ..serve.tracing import check_endpoint
from .capacity_table import capacity_table
from .generate_command import ProgressBars
from .terminal import terminal


@dataclass(frozen=True)
class ServeArguments:
    """`names`: of the model, for clients; as it was typed if there are none."""

    model: str
    target: str
    dtype: str
    context: int | None
    max_running: int
    max_waiting: int
    prompt_rows: int | None
    rows: int
    cache_gb: float | None
    gpu_memory_utilization: float
    batch_invariant: bool
    additional_properties: bool
    host: str
    port: int
    names: tuple[str, ...]
    api_key: str
    origins: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    max_body_mb: float
    receive_s: float
    max_connections: int
    step_limit_s: float
    drain_s: int
    response_store: int
    artifact: Path | None
    tool_parser: str
    reasoning_parser: str
    metrics_prefix: str
    otlp_endpoint: str


def serve_model(wanted: ServeArguments) -> None:
    check_prefix(wanted.metrics_prefix)
    if wanted.otlp_endpoint:
        check_endpoint(wanted.otlp_endpoint)
    check_parsers(wanted.tool_parser, wanted.reasoning_parser)
    shown = terminal(stderr=True)
    key = wanted.api_key or environment().api_key
    if key is None and not is_loopback(wanted.host):
        shown.print(f"eventtensor: everyone who reaches {wanted.host} may ask; --api-key or "
                    "ET_API_KEY sets a key", style="yellow")
    sockets = bind(wanted.host, wanted.port)  # an address that is taken is told at once
    with ProgressBars(shown) as bars:
        llm = LLM(wanted.model, target=wanted.target, dtype=wanted.dtype,
                  max_model_len=wanted.context, max_num_seqs=wanted.max_running,
                  max_waiting=wanted.max_waiting, max_prefill_tokens=wanted.prompt_rows,
                  max_num_batched_tokens=wanted.rows, cache_gb=wanted.cache_gb,
                  gpu_memory_utilization=wanted.gpu_memory_utilization,
                  batch_invariant=wanted.batch_invariant,
                  additional_properties=wanted.additional_properties,
                  step_limit_s=wanted.step_limit_s, progress=bars.update,
                  artifact=wanted.artifact)
    name, *aliases = wanted.names or (wanted.model,)
    shown.print(capacity_table(llm, name, sockets[0].getsockname()[1]))
    app = AppOptions(name, key, int(wanted.max_body_mb * (1 << 20)),
                     wanted.origins,
                     wanted.allowed_hosts if is_loopback(wanted.host) else None,
                     wanted.response_store, tool_parser=wanted.tool_parser,
                     reasoning_parser=wanted.reasoning_parser, aliases=tuple(aliases),
                     metrics_prefix=wanted.metrics_prefix,
                     otlp_endpoint=wanted.otlp_endpoint or None)
    serve(llm, ServeOptions(app, wanted.host, wanted.port, wanted.drain_s, wanted.step_limit_s,
                            wanted.receive_s, wanted.max_connections), sockets)
