"""What several commands have in common: their options, and errors as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import EventTensorError


class TargetName(StrEnum):
    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class DTypeName(StrEnum):
    bf16 = "bf16"
    f32 = "f32"


ModelName = Annotated[str, typer.Argument(
    metavar="MODEL",
    help="smollm2, random:NAME, a Hugging Face folder, or a GGUF file; see `eventtensor models`")]
TargetOption = Annotated[TargetName, typer.Option(help="auto: the GPU, where there is one")]
SameBits = Annotated[bool, typer.Option(
    "--same-bits", help="compute, to the bit, what any batch with this prompt gives; on a GPU that "
    "is slower")]

Artifact = Annotated[Path | None, typer.Option(
    help="a folder that `eventtensor compile` wrote: nothing is compiled then")]


@contextmanager
def told() -> Iterator[None]:
    """Errors of the user as text: cause and hint, and status 1."""
    try:
        yield
    except EventTensorError as e:
        typer.echo(f"{e.code}: {e.message}" + (f"\n  hint: {e.hint}" if e.hint else ""), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
