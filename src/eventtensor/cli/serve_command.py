"""`eventtensor serve`: its options, in parts of the help."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from ..errors import MissingPackage
from ..models.step import MAX_TOKENS
from .options import (
    SIZES,
    Artifact,
    BatchInvariant,
    CacheGb,
    Context,
    DType,
    DTypeName,
    GpuMemory,
    MaxRunning,
    ModelName,
    TargetName,
    TargetOption,
    check_numbers,
    check_texts,
    option,
    user_errors,
)

ANSWERS, ACCESS, LIMITS, WATCHING = "Answers", "Access", "Limits", "Watching"


def serve(
    model: ModelName,
    name: Annotated[
        list[str] | None,
        option(
            "of the model, for clients; may be repeated: an answer has the name that was asked for",
            None, "--served-model-name", "--name",
        ),
    ] = None,
    target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
    batch_invariant: BatchInvariant = False,
    artifact: Artifact = None,
    context: Context = None,
    cache_gb: CacheGb = None,
    gpu_memory_utilization: GpuMemory = 0.9,
    max_running: MaxRunning = 64,
    max_waiting: Annotated[int, option("requests beyond these; more get 429", SIZES)] = 256,
    enable_prefix_caching: Annotated[
        bool, option("always so; for command lines that say it", SIZES, "--enable-prefix-caching")
    ] = True,
    max_num_batched_tokens: Annotated[
        int, option("rows in a step: 128 at most, and one for each request", SIZES)
    ] = 128,
    prompt_rows: Annotated[
        int | None,
        option(
            "of prompts in a step while others decode: fewer make their tokens come faster, and "
            "first tokens later",
            SIZES,
        ),
    ] = None,
    tool_parser: Annotated[
        str,
        option(
            "how the model calls tools: hermes, llama3_json, prompted, or auto: as its template "
            "says",
            ANSWERS,
        ),
    ] = "auto",
    reasoning_parser: Annotated[
        str, option("how it thinks: think, none, or auto: as its template says", ANSWERS)
    ] = "auto",
    additional_properties: Annotated[
        bool,
        option(
            "objects of a JSON schema may have properties that it does not name, where it says "
            "nothing of them",
            ANSWERS,
        ),
    ] = False,
    response_store: Annotated[
        int,
        option("responses that stay in memory, for previous_response_id; 0: none", ANSWERS),
    ] = 1000,
    metrics_prefix: Annotated[
        str, option("what names of metrics begin with: vllm, for dashboards of vLLM", WATCHING)
    ] = "eventtensor",
    otlp_endpoint: Annotated[
        str,
        option("a collector of OpenTelemetry, as http://localhost:4318: it gets a span for each "
               "request; needs the extra `trace`", WATCHING),
    ] = "",
    host: Annotated[str, option("address to listen at", ACCESS)] = "127.0.0.1",
    port: Annotated[int, option("0: any that is free", ACCESS)] = 8000,
    api_key: Annotated[
        str,
        option(
            "what clients must send; ET_API_KEY keeps it out of the list of processes", ACCESS
        ),
    ] = "",
    allow_origin: Annotated[
        list[str] | None,
        option(
            "a site whose pages may ask, as https://example.org, or * for all; may be repeated",
            ACCESS,
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(hidden=True, help="the same as --allow-origin")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option(
            "a name besides localhost under which a server at the loopback address is asked; may "
            "be repeated",
            ACCESS,
        ),
    ] = None,
    max_body_mb: Annotated[float, option("larger bodies get 413", LIMITS)] = 4.0,
    receive_s: Annotated[
        float,
        option(
            "for the head of a request, and again for its body; what is slower gets 408", LIMITS
        ),
    ] = 30.0,
    max_connections: Annotated[
        int, option("beyond these a new one takes the place of an idle one", LIMITS)
    ] = 1024,
    step_limit_s: Annotated[float, option("a step beyond it counts as stuck", LIMITS)] = 60.0,
    drain_s: Annotated[int, option("for requests that run when the end comes", LIMITS)] = 30,
) -> None:
    """Serve a model over HTTP, in OpenAI's protocol."""
    with user_errors():
        texts = {"host": host, "api_key": api_key, "tool_parser": tool_parser,
                 "reasoning_parser": reasoning_parser, "metrics_prefix": metrics_prefix,
                 "otlp_endpoint": otlp_endpoint}
        numbers = {
            "context": context, "cache_gb": cache_gb, "max_running": max_running,
            "gpu_memory_utilization": gpu_memory_utilization, "max_waiting": max_waiting,
            "prompt_rows": prompt_rows, "response_store": response_store, "port": port,
            "max_body_mb": max_body_mb, "receive_s": receive_s, "step_limit_s": step_limit_s,
            "max_connections": max_connections, "drain_s": drain_s,
        }
        names, hosts = tuple(name or ()), tuple(allow_host or ())
        origins = (*(allow_origin or ()), *(cors_origin or ()))
        check_texts(**texts, name="".join(names), origins="".join([*origins, *hosts]))
        check_numbers(**numbers, max_num_batched_tokens=max_num_batched_tokens)
        serving = lazily(".server_launch")
        serving.serve_model(serving.ServeArguments(
            model=model, target=target.value, dtype=dtype.short_name,
            batch_invariant=batch_invariant, additional_properties=additional_properties,
            artifact=artifact,
            rows=min(max_num_batched_tokens, MAX_TOKENS),
            names=names, origins=origins, allowed_hosts=hosts, **texts, **numbers))


def lazily(module: str) -> Any:
    """A part of the command that no other command has to wait for."""
    try:
        return import_module(module, __package__)
    except ModuleNotFoundError as e:
        raise MissingPackage(f"{e.name} is not installed") from e
