"""Starts the model, the engine and the server of `eventtensor serve` from checked arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...config import environment
from ..engine.llm import LLM
from ..serve.access_control import is_loopback
from ..serve.app import AppOptions
from ..serve.chat_format import check_parsers
from ..serve.listen_sockets import bind
from ..serve.metrics import check_prefix
from ..serve.server import ServeOptions, serve
from ..serve.tracing import check_endpoint
from .capacity_table import capacity_table
from .progress_bars import ProgressBars
from .terminal import terminal


@dataclass(frozen=True)
class ServeArguments:
    """`names` are the model's names for clients. Without them the model argument is the name."""

    model: str
    target: str
    dtype: str
    max_model_len: int | None
    max_num_seqs: int
    max_waiting: int
    max_prefill_tokens: int | None
    max_num_batched_tokens: int
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


def serve_model(args: ServeArguments) -> None:
    check_prefix(args.metrics_prefix)
    if args.otlp_endpoint:
        check_endpoint(args.otlp_endpoint)
    check_parsers(args.tool_parser, args.reasoning_parser)
    shown = terminal(stderr=True)
    key = args.api_key or environment().api_key
    if key is None and not is_loopback(args.host):
        shown.print(f"eventtensor: everyone who reaches {args.host} may ask; --api-key or "
                    "ET_API_KEY sets a key", style="yellow")
    sockets = bind(args.host, args.port)  # a taken address is an error before the weights load
    with ProgressBars(shown) as bars:
        llm = LLM(args.model, target=args.target, dtype=args.dtype,
                  max_model_len=args.max_model_len, max_num_seqs=args.max_num_seqs,
                  max_waiting=args.max_waiting, max_prefill_tokens=args.max_prefill_tokens,
                  max_num_batched_tokens=args.max_num_batched_tokens, cache_gb=args.cache_gb,
                  gpu_memory_utilization=args.gpu_memory_utilization,
                  batch_invariant=args.batch_invariant,
                  additional_properties=args.additional_properties,
                  step_limit_s=args.step_limit_s, progress=bars.update,
                  artifact=args.artifact)
    name, *aliases = args.names or (args.model,)
    shown.print(capacity_table(llm, name, sockets[0].getsockname()[1]))
    app = AppOptions(name, key, int(args.max_body_mb * (1 << 20)),
                     args.origins,
                     args.allowed_hosts if is_loopback(args.host) else None,
                     args.response_store, tool_parser=args.tool_parser,
                     reasoning_parser=args.reasoning_parser, aliases=tuple(aliases),
                     metrics_prefix=args.metrics_prefix,
                     otlp_endpoint=args.otlp_endpoint or None)
    serve(llm, ServeOptions(app, args.host, args.port, args.drain_s, args.step_limit_s,
                            args.receive_s, args.max_connections), sockets)
