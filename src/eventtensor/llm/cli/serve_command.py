"""`eventtensor serve`: its options in panels of the help, and their checks.

`server_launch.py` starts the server. It is imported late, because the packages of the server are
slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

from ...errors import MissingPackage
from ..model.step_limits import MAX_TOKENS
from .options import (
    SIZES,
    Artifact,
    BatchInvariant,
    CacheGb,
    DType,
    DTypeName,
    GpuMemory,
    MaxModelLen,
    MaxNumSeqs,
    ModelName,
    TargetName,
    TargetOption,
    check_numbers,
    check_texts,
    option,
    user_errors,
)

ANSWERS, ACCESS, LIMITS, MONITORING = "Answers", "Access", "Limits", "Monitoring"


def serve(
    model: ModelName,
    served_model_name: Annotated[
        list[str] | None,
        option("the model's name for clients; may be repeated: an answer has the name of its "
               "request"),
    ] = None,
    target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
    batch_invariant: BatchInvariant = False,
    artifact: Artifact = None,
    max_model_len: MaxModelLen = None,
    cache_gb: CacheGb = None,
    gpu_memory_utilization: GpuMemory = 0.9,
    max_num_seqs: MaxNumSeqs = 64,
    max_waiting: Annotated[int, option("requests that wait; more get 429", SIZES)] = 256,
    enable_prefix_caching: Annotated[
        bool, option("always on; accepted for compatibility", SIZES, "--enable-prefix-caching")
    ] = True,
    max_num_batched_tokens: Annotated[
        int, option("tokens in a step: 128 at most, and one for each request", SIZES)
    ] = 128,
    max_prefill_tokens: Annotated[
        int | None,
        option(
            "prefill tokens in a step while other requests decode: fewer make decoding faster and "
            "the first token later",
            SIZES,
        ),
    ] = None,
    tool_parser: Annotated[
        str,
        option(
            "syntax of tool calls: hermes, llama3_json, prompted, or auto: by the chat template",
            ANSWERS,
        ),
    ] = "auto",
    reasoning_parser: Annotated[
        str, option("syntax of reasoning: think, none, or auto: by the chat template", ANSWERS)
    ] = "auto",
    additional_properties: Annotated[
        bool,
        option(
            "objects may have properties that their JSON schema does not name, unless the schema "
            "forbids them",
            ANSWERS,
        ),
    ] = False,
    response_store: Annotated[
        int,
        option("responses to store in memory, for previous_response_id; 0: none", ANSWERS),
    ] = 1000,
    metrics_prefix: Annotated[
        str, option("prefix of metric names: vllm, for dashboards of vLLM", MONITORING)
    ] = "eventtensor",
    otlp_endpoint: Annotated[
        str,
        option("an OpenTelemetry collector for request spans, as http://localhost:4318; needs the "
               "extra `trace`", MONITORING),
    ] = "",
    host: Annotated[str, option("address to listen on", ACCESS)] = "127.0.0.1",
    port: Annotated[int, option("port to listen on; 0: any free one", ACCESS)] = 8000,
    api_key: Annotated[
        str,
        option(
            "the key that clients must send; ET_API_KEY hides it from the process list", ACCESS
        ),
    ] = "",
    allow_origin: Annotated[
        list[str] | None,
        option(
            "a site whose pages may send requests, as https://example.org, or * for all; may be "
            "repeated",
            ACCESS,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option(
            "a host name besides localhost for a server at a loopback address; may be repeated",
            ACCESS,
        ),
    ] = None,
    max_body_mb: Annotated[float, option("largest body in MB; larger ones get 413", LIMITS)] = 4.0,
    receive_s: Annotated[
        float,
        option(
            "seconds for the head of a request, and again for its body; slower ones get 408", LIMITS
        ),
    ] = 30.0,
    max_connections: Annotated[
        int, option("connections; beyond these a new one replaces an idle one", LIMITS)
    ] = 1024,
    step_limit_s: Annotated[
        float, option("seconds after which a step counts as stuck", LIMITS)
    ] = 60.0,
    drain_s: Annotated[
        int, option("seconds for running requests to finish on shutdown", LIMITS)
    ] = 30,
) -> None:
    """Serve a model over HTTP, in OpenAI's protocol."""
    with user_errors():
        texts = {"host": host, "api_key": api_key, "tool_parser": tool_parser,
                 "reasoning_parser": reasoning_parser, "metrics_prefix": metrics_prefix,
                 "otlp_endpoint": otlp_endpoint}
        numbers = {
            "max_model_len": max_model_len, "cache_gb": cache_gb, "max_num_seqs": max_num_seqs,
            "gpu_memory_utilization": gpu_memory_utilization, "max_waiting": max_waiting,
            "max_prefill_tokens": max_prefill_tokens, "response_store": response_store,
            "port": port,
            "max_body_mb": max_body_mb, "receive_s": receive_s, "step_limit_s": step_limit_s,
            "max_connections": max_connections, "drain_s": drain_s,
        }
        names, hosts = tuple(served_model_name or ()), tuple(allow_host or ())
        origins = tuple(allow_origin or ())
        check_texts(**texts, served_model_name="".join(names), origins="".join([*origins, *hosts]))
        check_numbers(**numbers, max_num_batched_tokens=max_num_batched_tokens)
        launch = import_lazily(".server_launch")
        launch.serve_model(launch.ServeArguments(
            model=model, target=target.value, dtype=dtype.short_name,
            batch_invariant=batch_invariant, additional_properties=additional_properties,
            artifact=artifact,
            max_num_batched_tokens=min(max_num_batched_tokens, MAX_TOKENS),
            names=names, origins=origins, allowed_hosts=hosts, **texts, **numbers))


def import_lazily(module: str) -> Any:
    """Imports a module that the other commands do not need."""
    try:
        return import_module(module, __package__)
    except ModuleNotFoundError as e:
        raise MissingPackage(f"{e.name} is not installed") from e
