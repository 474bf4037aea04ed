"""`eventtensor serve`: its options in panels of the help, and their checks.

`server_launch.py` starts the server. It is imported late, because the packages of the server are
slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

from ..errors import MissingPackage
from ..models.step import MAX_TOKENS
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
    max_waiting: Annotated[int, option("requests beyond these; more get 429", SIZES)] = 256,
    enable_prefix_caching: Annotated[
        bool, option("always so; for command lines that say it", SIZES, "--enable-prefix-caching")
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
        str, option("what names of metrics begin with: vllm, for dashboards of vLLM", MONITORING)
    ] = "eventtensor",
    otlp_endpoint: Annotated[
        str,
        option("a collector of OpenTelemetry, as http://localhost:4318: it gets a span for each "
               "request; needs the extra `trace`", MONITORING),
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
