"""Options and checks that several commands share, and the reporting of user errors.

Options of one command alone are in its module. Old option names are in `option_aliases.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ...errors import BadOption, EventTensorError, OutOfMemory, SystemRefused


class TargetName(StrEnum):
    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class StageName(StrEnum):
    """What `explain` shows."""

    plan = "plan"
    kernel_ir = "kernel_ir"
    source = "source"


class DTypeName(StrEnum):
    """Storage types, also by vLLM's names."""

    bf16 = "bf16"
    f32 = "f32"
    auto = "auto"
    bfloat16 = "bfloat16"
    float32 = "float32"

    @property
    def short_name(self) -> str:
        return "f32" if self in (DTypeName.f32, DTypeName.float32) else "bf16"


SIZES = "Sizes"  # a panel of the help


def option(text: str, panel: str | None = None, *names: str) -> Any:
    """An option with its help text, in a panel of the help."""
    return typer.Option(*names, help=text, rich_help_panel=panel)


ModelName = Annotated[str, typer.Argument(
    metavar="MODEL",
    help="smollm2, random:NAME, a Hugging Face folder, or a GGUF file; see `eventtensor models`")]
TargetOption = Annotated[TargetName, option("auto: the GPU, if there is one")]
DeviceOption = Annotated[str | None, typer.Option(
    metavar="NAME", help="a kind of GPU by its name, as h200, a100 or sm_90; it need not be here")]
DType = Annotated[DTypeName, option("storage type of weights and cache; auto: bf16")]
BatchInvariant = Annotated[bool, typer.Option(
    "--batch-invariant",
    help="same bits for a prompt in every batch; slower on a GPU")]
MaxModelLen = Annotated[int | None, option(
    "context length: tokens of prompt and answer; by default the model's, as far as memory goes",
    SIZES)]
MaxNumSeqs = Annotated[int, option("requests that run at a time, 64 at most", SIZES)]
CacheGb = Annotated[float | None, option(
    "KV cache in GB; by default what all contexts need, as far as memory goes: on the host up to "
    "4 GB, and a quarter of the free memory", SIZES)]
GpuMemory = Annotated[float, option(
    "share of a GPU's memory for weights and KV cache, unless --cache-gb is given", SIZES)]
Artifact = Annotated[Path | None, typer.Option(
    help="a folder of `eventtensor compile`; nothing is compiled then")]


# The range of each number on the command line, by name. NaN is in no range.
_RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "max_model_len": (1, 1 << 24),
    "max_num_seqs": (1, 1 << 20),
    "max_waiting": (0, 1 << 20),
    "max_prefill_tokens": (1, 1 << 20),
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
    """Refuses words that are not UTF-8."""
    for name, value in given.items():
        try:
            value.encode()
        except UnicodeError:
            raise BadOption(f"{name} is not UTF-8: {value[:80]!r}",
                            hint="it must be text") from None


def check_out(path: Path | None) -> None:
    """Checks the output file before hours of measuring."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise BadOption(f"out is {str(path)[:200]!r}", hint="a file in a folder that is there")


@contextmanager
def user_errors() -> Iterator[None]:
    """Prints errors of the user and of the system as text with a hint, and exits with status 1."""
    try:
        yield
    except EventTensorError as e:
        _exit(e)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:  # the reader has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from None
    except MemoryError:
        _exit(OutOfMemory("there is not enough memory for this"))
    except (OSError, UnicodeError) as e:
        _exit(SystemRefused(_system_message(e)))


def _system_message(e: OSError | UnicodeError) -> str:
    name = getattr(e, "filename", None)
    reason = getattr(e, "strerror", None) or str(e)
    return reason if name is None else f"{name}: {reason}"


def _exit(e: EventTensorError) -> NoReturn:
    typer.echo(f"{e.code}: {e.message}" + (f"\n  hint: {e.hint}" if e.hint else ""), err=True)
    raise typer.Exit(1) from None
