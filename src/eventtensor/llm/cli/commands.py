"""The commands of `eventtensor` and their options. A user error prints its text and exits with
status 1. What a command does is in its own module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ... import __version__
from ..engine.sampling_params import SamplingParams
from .bench_command import app as bench
from .chat_command import chat
from .compile_command import compile_model
from .generate_command import ChatPrompt, generate_text
from .models_command import models_table
from .option_aliases import AliasGroup
from .options import (
    Artifact,
    BatchInvariant,
    DeviceOption,
    DType,
    DTypeName,
    ModelName,
    StageName,
    TargetName,
    TargetOption,
    check_texts,
    option,
    user_errors,
)
from .program_commands import check_program, explain_program
from .serve_command import serve

app = typer.Typer(
    cls=AliasGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")


Function = Annotated[str, typer.Argument(
    metavar="MODULE:FUNCTION", help="a function that returns a program, as in examples/mlp.py:mlp")]


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"eventtensor {__version__}")
        raise typer.Exit


@app.callback()
def version(
    _: Annotated[bool, typer.Option(
        "--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """Compiles tiled programs, and language models, into one persistent kernel."""


@app.command()
def generate(
    model: ModelName,
    prompt: Annotated[str, typer.Option(help="the text to answer or, with --raw, to continue")],
    max_tokens: Annotated[int, typer.Option(help="maximum tokens of the answer")] = 128,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token")] = 0.0,
    top_k: Annotated[int, typer.Option(help="only the k likeliest tokens; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(
        help="only the likeliest tokens with this total probability")] = 1.0,
    seed: Annotated[int, typer.Option(help="seed of sampling")] = 0,
    target: TargetOption = TargetName.auto,
    chat: Annotated[bool | None, typer.Option(
        "--chat/--raw", help="with the model's chat template (if it has one), or without")] = None,
    dtype: DType = DTypeName.bf16,
    system: Annotated[str, typer.Option(help="the system message")] = "",
    batch_invariant: BatchInvariant = False,
    artifact: Artifact = None,
) -> None:
    """Answer a prompt and stream the text; the speed goes to stderr."""
    with user_errors():
        check_texts(prompt=prompt, system=system)
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_k=top_k,
                                top_p=top_p, seed=seed)
        texts = generate_text(model, ChatPrompt(prompt, system, chat), params, target.value,
                              dtype.short_name, batch_invariant, artifact)
        for text in texts:
            sys.stdout.write(text)
            sys.stdout.flush()


app.command()(chat)
app.command()(serve)


@app.command("compile")
def compile_command(
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", "-o", help="the folder to write")],
    target: TargetOption = TargetName.auto,
    dtype: DType = DTypeName.bf16,
    batch_invariant: BatchInvariant = False,
    device: DeviceOption = None,
) -> None:
    """Compile a model's kernels into a folder, for --artifact of `generate` and `serve`."""
    with user_errors():
        compile_model(model, out, target.value, dtype.short_name, batch_invariant, device)


@app.command()
def models() -> None:
    """List the models that have a name."""
    with user_errors():
        models_table()


@app.command()
def check(function: Function) -> None:
    """Prove a program: races, deadlocks, indices; for all sizes."""
    with user_errors():
        if not check_program(function):
            raise typer.Exit(1)


@app.command()
def explain(
    function: Function,
    target: TargetOption = TargetName.cpu,
    device: DeviceOption = None,
    stage: Annotated[
        StageName,
        option(
            "plan: schedules, events, memory; kernel_ir: bodies of tasks; source: what is compiled"
        ),
    ] = StageName.plan,
) -> None:
    """Show what the compiler makes of a program. No GPU is needed."""
    with user_errors():
        explain_program(function, target.value, device, stage.value)
