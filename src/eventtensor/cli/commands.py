"""The commands: what is typed, and which function does it. A user error ends a command with its
text and status 1."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from ..engine.params import SamplingParams
from ..errors import MissingPackage
from .benching import app as bench
from .compiling import compile_model
from .listing import models_table
from .programs import check_program, explain_program
from .speaking import Chat, answer
from .typed import (
    Artifact,
    DTypeName,
    ModelName,
    SameBits,
    TargetName,
    TargetOption,
    check_numbers,
    check_texts,
    told,
)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")


Function = Annotated[str, typer.Argument(
    metavar="MODULE:FUNCTION", help="a function that gives a program, as in examples/mlp.py:mlp")]


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"eventtensor {__version__}")
        raise typer.Exit


@app.callback()
def version(
    _: Annotated[bool, typer.Option(
        "--version", callback=_say_version, is_eager=True, help="say the version, and end")
    ] = False,
) -> None:
    """Compiles tiled programs, and language models, into one persistent kernel."""


@app.command()
def generate(
    model: ModelName,
    prompt: Annotated[str, typer.Option(help="the text to answer or, with --raw, to continue")],
    max_tokens: Annotated[int, typer.Option(help="end after so many tokens")] = 128,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token")] = 0.0,
    top_k: Annotated[int, typer.Option(help="only the k likeliest tokens; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="only the likeliest that have this share")] = 1.0,
    seed: Annotated[int, typer.Option(help="of the tokens that are drawn")] = 0,
    target: TargetOption = TargetName.auto,
    chat: Annotated[bool | None, typer.Option(
        "--chat/--raw", help="with the model's chat template (if it has one), or as it is")] = None,
    dtype: Annotated[DTypeName, typer.Option(help="of weights and cache")] = DTypeName.bf16,
    system: Annotated[str, typer.Option(help="what the chat begins with")] = "",
    same_bits: SameBits = False,
    artifact: Artifact = None,
) -> None:
    """Answer a prompt, as text that comes token by token; the speed goes to stderr."""
    with told():
        check_texts(prompt=prompt, system=system)
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_k=top_k,
                                top_p=top_p, seed=seed)
        spoken = answer(model, Chat(prompt, system, chat), params, target.value, dtype.value,
                        same_bits, artifact)
        for text in spoken:
            sys.stdout.write(text)
            sys.stdout.flush()


@app.command()
def serve(
    model: ModelName,
    host: Annotated[str, typer.Option(help="address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free")] = 8000,
    api_key: Annotated[str, typer.Option(
        help="what clients must send; ET_API_KEY keeps it out of the list of processes")] = "",
    cors_origin: Annotated[list[str] | None, typer.Option(
        help="a site whose pages may ask, as https://example.org, or * for all; may be repeated")
    ] = None,
    allow_host: Annotated[list[str] | None, typer.Option(
        help="a name besides localhost under which a server at the loopback address is asked; may "
        "be repeated")] = None,
    name: Annotated[str, typer.Option(help="of the model, for clients")] = "",
    context: Annotated[int, typer.Option(help="tokens of prompt and answer together")] = 2048,
    max_running: Annotated[int, typer.Option(help="requests in a step, 64 at most")] = 64,
    max_waiting: Annotated[int, typer.Option(help="requests beyond these; more get 429")] = 256,
    prompt_rows: Annotated[int | None, typer.Option(
        help="of prompts in a step while others decode: fewer make their tokens come faster, and "
        "first tokens later")] = None,
    cache_gb: Annotated[float, typer.Option(help="memory for keys and values")] = 1.0,
    max_body_mb: Annotated[float, typer.Option(help="larger bodies get 413")] = 4.0,
    receive_s: Annotated[float, typer.Option(
        help="for the head of a request, and again for its body; what is slower gets 408")] = 30.0,
    max_connections: Annotated[int, typer.Option(
        help="beyond these a new one takes the place of an idle one")] = 1024,
    step_limit_s: Annotated[float, typer.Option(help="a step beyond it counts as stuck")] = 60.0,
    drain_s: Annotated[int, typer.Option(help="for requests that run when the end comes")] = 30,
    response_store: Annotated[int, typer.Option(
        help="responses that stay in memory, for previous_response_id; 0: none")] = 1000,
    tool_parser: Annotated[str, typer.Option(
        help="how the model calls tools: hermes, llama3_json, prompted, or auto: as its template "
        "says")] = "auto",
    reasoning_parser: Annotated[str, typer.Option(
        help="how it thinks: think, none, or auto: as its template says")] = "auto",
    target: TargetOption = TargetName.auto,
    dtype: Annotated[DTypeName, typer.Option(help="of weights and cache")] = DTypeName.bf16,
    same_bits: SameBits = False,
    artifact: Artifact = None,
) -> None:
    """Serve a model over HTTP, in OpenAI's protocol."""
    with told():
        check_texts(host=host, api_key=api_key, name=name, tool_parser=tool_parser,
                    reasoning_parser=reasoning_parser,
                    origins="".join([*(cors_origin or ()), *(allow_host or ())]))
        check_numbers(port=port, context=context, max_running=max_running,
                      max_waiting=max_waiting, prompt_rows=prompt_rows, cache_gb=cache_gb,
                      max_body_mb=max_body_mb, step_limit_s=step_limit_s, drain_s=drain_s,
                      receive_s=receive_s, max_connections=max_connections,
                      response_store=response_store)
        serving = lazily(".serving")
        serving.serve_model(serving.Wanted(
            model, target.value, dtype.value, context, max_running, max_waiting, prompt_rows,
            cache_gb, same_bits, host, port, name, api_key,
            tuple(cors_origin or ()), tuple(allow_host or ()), max_body_mb, receive_s,
            max_connections, step_limit_s, drain_s, response_store, artifact,
            tool_parser=tool_parser, reasoning_parser=reasoning_parser))


def lazily(module: str) -> Any:
    """A part of the command that no other command has to wait for."""
    try:
        return import_module(module, __package__)
    except ModuleNotFoundError as e:
        raise MissingPackage(f"{e.name} is not installed") from e


@app.command("compile")
def compile_command(
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", "-o", help="the folder to write")],
    target: TargetOption = TargetName.auto,
    dtype: Annotated[DTypeName, typer.Option(help="of weights and cache")] = DTypeName.bf16,
    same_bits: SameBits = False,
) -> None:
    """Compile a model's kernels into a folder, for --artifact of `generate` and `serve`."""
    with told():
        compile_model(model, out, target.value, dtype.value, same_bits)


@app.command()
def models() -> None:
    """List the models that have a name."""
    with told():
        models_table()


@app.command()
def check(function: Function) -> None:
    """Prove a program: races, deadlocks, indices; for all sizes."""
    with told():
        if not check_program(function):
            raise typer.Exit(1)


@app.command()
def explain(function: Function, target: TargetOption = TargetName.cpu) -> None:
    """Tell what was derived of a program: events, maps, schedules."""
    with told():
        explain_program(function, target.value)
