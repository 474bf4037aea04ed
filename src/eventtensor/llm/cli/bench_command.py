"""`eventtensor bench ..`: options of the benchmark commands, and the table of results.

The measurements are in the package `bench`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ...errors import BadOption
from ..bench.completion_client import Address
from ..bench.http_load import measure_http_load, run_server
from ..bench.in_process import Workload, measure_latency, measure_throughput
from ..bench.results import Row, write_rows
from ..bench.startup import measure_startup
from ..engine.llm import LLM
from ..runner.target_name import find_target
from .options import (
    BatchInvariant,
    CacheGb,
    DType,
    DTypeName,
    ModelName,
    TargetName,
    TargetOption,
    check_numbers,
    check_out,
    check_texts,
    user_errors,
)
from .terminal import terminal

app = typer.Typer(help="Measure latency, throughput, a server under load, or the start.",
                  no_args_is_help=True)

_CLIENTS = re.compile(r"[0-9]{1,4}(,[0-9]{1,4})*")
InputTokens = Annotated[int, typer.Option(help="tokens of each prompt")]
OutputTokens = Annotated[int, typer.Option(help="tokens of each answer")]
Runs = Annotated[int, typer.Option(help="measured runs")]
Warm = Annotated[int, typer.Option(help="warm-up runs")]
Out = Annotated[Path | None, typer.Option(help="a JSON file for the results")]


@app.command("latency")
def latency_command(
    model: ModelName,
    batch: Annotated[int, typer.Option(help="requests at a time")] = 1,
    input: InputTokens = 32,
    output: OutputTokens = 128,
    runs: Runs = 10,
    warm: Warm = 2,
    out: Out = None,
    target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
    cache_gb: CacheGb = None,
    batch_invariant: BatchInvariant = False,
) -> None:
    """One batch at a time: time to the first token, between tokens, and in total."""
    with user_errors():
        check_numbers(batch=batch, input=input, output=output, runs=runs, warm=warm)
    workload = Workload(input, output)
    _measure(lambda llm: measure_latency(llm, workload, batch, runs, warm), model,
             input + output, target, dtype, cache_gb, batch_invariant, out)


@app.command("throughput")
def throughput_command(
    model: ModelName,
    requests: Annotated[int, typer.Option(help="requests, all sent at once")] = 64,
    input: InputTokens = 512,
    output: OutputTokens = 128,
    runs: Runs = 3,
    warm: Warm = 1,
    out: Out = None,
    target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
    cache_gb: CacheGb = None,
    batch_invariant: BatchInvariant = False,
) -> None:
    """Many requests at once: requests and tokens a second."""
    with user_errors():
        check_numbers(requests=requests, input=input, output=output, runs=runs, warm=warm)
    workload = Workload(input, output)
    _measure(lambda llm: measure_throughput(llm, workload, requests, runs, warm), model,
             input + output, target, dtype, cache_gb, batch_invariant, out)


@app.command("serve")
def serve_command(
    model: Annotated[str, typer.Argument(help="the model to serve; not needed with --url")] = "",
    url: Annotated[str, typer.Option(help="a server that runs already")] = "",
    api_key: Annotated[str, typer.Option(help="the API key of that server")] = "",
    clients: Annotated[str, typer.Option(help="numbers of concurrent clients")] = "1,8,32,64",
    requests: Annotated[int, typer.Option(help="measured requests of each client")] = 4,
    input: InputTokens = 512,
    output: OutputTokens = 128,
    warm: Warm = 1,
    out: Out = None,
    target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
    cache_gb: CacheGb = None,
    batch_invariant: BatchInvariant = False,
) -> None:
    """A server under load: clients send one request after the other."""
    with user_errors():
        if not _CLIENTS.fullmatch(clients) or bool(model) == bool(url):
            raise BadOption(f"clients is {clients[:80]!r}, model {model!r}, url {url!r}",
                            hint="clients as in 1,8,32; a model or the url of a server")
        workload, counts = Workload(input, output), [int(n) for n in clients.split(",")]
        check_numbers(requests=requests, input=input, output=output, warm=warm,
                      cache_gb=cache_gb, clients=max(counts))
        check_numbers(clients=min(counts))
        check_texts(url=url, api_key=api_key)
        check_out(out)
        if url:
            at = Address.parse(url, api_key)
            return _show(measure_http_load(at, workload, counts, requests, warm), out)
        options = [
            "--target",
            target.value,
            "--dtype",
            dtype.short_name,
            "--max-model-len",
            str(input + output),
            *(["--batch-invariant"] if batch_invariant else []),
            *(["--cache-gb", str(cache_gb)] if cache_gb is not None else []),
        ]
        with run_server(model, options) as at:
            return _show(measure_http_load(at, workload, counts, requests, warm), out)


@app.command("startup")
def startup_command(
    model: ModelName, runs: Runs = 3, out: Out = None, target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
) -> None:
    """From process start to the first token: with empty caches, full ones, an artifact."""
    with user_errors():
        check_numbers(runs=runs)
        check_out(out)
        chosen = find_target(target.value)
        _show(measure_startup(model, {"target": chosen, "dtype": dtype.short_name}, runs), out)


def _measure(
    measure: Callable[[LLM], list[Row]],
    model: str,
    context: int,
    target: TargetName,
    dtype: DTypeName,
    cache_gb: float | None,
    batch_invariant: bool,
    out: Path | None,
) -> None:
    with user_errors():
        check_numbers(cache_gb=cache_gb)
        check_out(out)
    with (
        user_errors(),
        LLM(
            model,
            target=target.value,
            dtype=dtype.short_name,
            max_model_len=context,
            cache_gb=cache_gb,
            batch_invariant=batch_invariant,
        ) as llm,
    ):
        _show(measure(llm), out)


def _show(rows: Sequence[Row], out: Path | None) -> None:
    table = Table("what", "mean", "median", "p99", "unit", "of", box=None, pad_edge=False)
    known = ("name", "mean", "median", "p10", "p90", "p99", "unit")
    for r in rows:
        numbers = [f"{r[k]:.4g}" if k in r else "-" for k in ("mean", "median", "p99")]
        of = " ".join(f"{k}={v}" for k, v in r.items() if k not in known)
        table.add_row(r["name"], *numbers, r["unit"], of)
    terminal().print(table)
    if out is not None:
        write_rows(rows, out)
