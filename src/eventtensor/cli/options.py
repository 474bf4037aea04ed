"""What several commands have in common: their options, and errors as text."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ..errors import BadOption, EventTensorError, OutOfMemory, SystemRefused


class TargetName(StrEnum):
    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class DTypeName(StrEnum):
    """Also by the names that other servers have."""

    bf16 = "bf16"
    f32 = "f32"
    auto = "auto"
    bfloat16 = "bfloat16"
    float32 = "float32"

    @property
    def short_name(self) -> str:
        return "f32" if self in (DTypeName.f32, DTypeName.float32) else "bf16"


SIZES = "Sizes"  # a part of a long help


def option(text: str, part: str | None = None, *names: str) -> Any:
    """An option with its help, in a part of it."""
    return typer.Option(*names, help=text, rich_help_panel=part)


ModelName = Annotated[str, typer.Argument(
    metavar="MODEL",
    help="smollm2, random:NAME, a Hugging Face folder, or a GGUF file; see `eventtensor models`")]
TargetOption = Annotated[TargetName, option("auto: the GPU, where there is one")]
DType = Annotated[DTypeName, option("of weights and cache; auto: bf16")]
BatchInvariant = Annotated[bool, typer.Option(
    "--batch-invariant",
    help="compute, to the bit, what any batch with this prompt gives; on a GPU that is slower")]
Context = Annotated[int | None, option(
    "tokens of prompt and answer together; by default what the model has, as far as memory goes",
    SIZES, "--context", "--max-model-len")]
MaxRunning = Annotated[int, option(
    "requests in a step, 64 at most", SIZES, "--max-running", "--max-num-seqs")]
CacheGb = Annotated[float | None, option(
    "memory for keys and values; by default what all contexts need, as far as memory goes: on the "
    "host up to 4 GB, and a quarter of what is free", SIZES)]
GpuMemory = Annotated[float, option(
    "share of a GPU's memory for weights and cache, unless --cache-gb says it", SIZES)]
Artifact = Annotated[Path | None, typer.Option(
    help="a folder that `eventtensor compile` wrote: nothing is compiled then")]


# What the numbers of all commands must be, by name. NaN is in no range.
_RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "context": (1, 1 << 24),
    "max_running": (1, 1 << 20),
    "max_waiting": (0, 1 << 20),
    "prompt_rows": (1, 1 << 20),
    "cache_gb": (0, 1 << 20),
    "gpu_memory_utilization": (0, 1),
    "max_num_batched_tokens": (1, 1 << 30),
    "max_body_mb": (1e-6, 1 << 10),
    "step_limit_s": (1e-6, 1e6),
    "drain_s": (0, 1e6),
    "receive_s": (1e-3, 1e6),
    "max_connections": (1, 1 << 20),
    "response_store": (0, 1 << 20),
    "batch": (1, 1 << 12),
    "input": (1, 1 << 20),
    "output": (1, 1 << 20),
    "runs": (1, 1 << 20),
    "warm": (0, 1 << 20),
    "requests": (1, 1 << 20),
    "clients": (1, 1 << 12),
}


def check_numbers(**given: float | None) -> None:
    for name, value in given.items():
        low, high = _RANGES[name]
        if value is not None and not low <= value <= high:
            raise BadOption(f"{name} is {value}", hint=f"it must be {low:g} to {high:.10g}")


def check_texts(**given: str) -> None:
    """Words of a command line need not be text."""
    for name, value in given.items():
        try:
            value.encode()
        except UnicodeError:
            raise BadOption(f"{name} is not UTF-8: {value[:80]!r}",
                            hint="it must be text") from None


def check_out(path: Path | None) -> None:
    """Before hours of measuring."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise BadOption(f"out is {str(path)[:200]!r}", hint="a file in a folder that is there")


@contextmanager
def user_errors() -> Iterator[None]:
    """Errors of the user, and refusals of the system, as text: cause and hint, and status 1."""
    try:
        yield
    except EventTensorError as e:
        _end(e)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from None
    except MemoryError:
        _end(OutOfMemory("there is not enough memory for this"))
    except (OSError, UnicodeError) as e:
        _end(SystemRefused(_of_system(e)))


def _of_system(e: OSError | UnicodeError) -> str:
    name = getattr(e, "filename", None)
    reason = getattr(e, "strerror", None) or str(e)
    return reason if name is None else f"{name}: {reason}"


def _end(e: EventTensorError) -> NoReturn:
    typer.echo(f"{e.code}: {e.message}" + (f"\n  hint: {e.hint}" if e.hint else ""), err=True)
    raise typer.Exit(1) from None
