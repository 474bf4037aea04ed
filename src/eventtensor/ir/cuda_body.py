"""A custom CUDA body: source that replaces the code which a Python body would give.

The compiler decides by the declarations alone, and prints the source into the kernel.
`cuda_body_check.py` compares the two, `cuda_body_text.py` prints and parses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import BadCudaBody
from .body_headers import Headers, resolve_headers
from .tensor import DType

_COUNT = re.compile(r"\w+( *[*+] *\w+)*")


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory in the task's arena for `count` elements, with a pointer `name` in the source. A count
    is a sum of products of numbers and extents: `2*x_1 + 8`, where `x_1` is the extent of axis 1 of
    the argument `x`."""

    name: str
    dtype: DType
    count: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", str(self.count))
        if not self.name.isidentifier() or not isinstance(self.dtype, DType):
            raise BadCudaBody(f"scratch {self.name!r} of {self.dtype!r} needs a name and a dtype")
        if _COUNT.fullmatch(str(self.count)) is None:
            raise BadCudaBody(
                f"scratch '{self.name}' has {self.count!r} elements, which is no sum of products",
                hint="use numbers and extents: x_1 is that of axis 1 of x")


@dataclass(frozen=True, slots=True)
class Producer:
    """The work of the producer warp for a task, ahead of the task's waits. `source` loads stages
    of the read arguments `operands`, and names no others."""

    source: str
    operands: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_source(self.source, "a producer")
        object.__setattr__(self, "operands", _names(self.operands, "operands"))


@dataclass(frozen=True, slots=True)
class CudaBody:
    """The body of a task for a GPU, and what its source does beyond reading and writing arguments.

    `waits_inside`: the task begins before its last wait is over. The source calls `arrive()` once,
    touches these read arguments only afterwards, and writes nothing before. It returns false if
    `arrive()` does.
    `prefetches_next_tile`: it asks for the tile that its worker takes next, and begins to load it.
    `persistent_bytes_per_warp`: shared memory of each warp that lasts from one task of the grid to
    the next on the same worker.
    `scratch`: temporaries of one task.
    `producer`: the `streamed` branch of the body takes the stages that this producer loads.
    `headers`: files that the source and the producer's source include, by their paths. The key of
    the compiled kernel covers their text."""

    source: str
    waits_inside: tuple[str, ...] = ()
    prefetches_next_tile: bool = False
    persistent_bytes_per_warp: int = 0
    scratch: tuple[Scratch, ...] = ()
    producer: Producer | None = None
    headers: Headers = ()

    def __post_init__(self) -> None:
        _require_source(self.source, "a CUDA body")
        object.__setattr__(self, "waits_inside", _names(self.waits_inside, "waits_inside"))
        object.__setattr__(self, "scratch", tuple(self.scratch))
        object.__setattr__(self, "headers", resolve_headers(self.headers, BadCudaBody))
        if not all(isinstance(s, Scratch) for s in self.scratch):
            raise BadCudaBody("scratch= of a CUDA body takes et.Scratch(name, dtype, count)")
        if self.producer is not None and not isinstance(self.producer, Producer):
            raise BadCudaBody("producer= of a CUDA body takes et.Producer(source, operands)")
        size = self.persistent_bytes_per_warp
        if not isinstance(size, int) or size < 0:
            raise BadCudaBody(f"persistent_bytes_per_warp={size!r} is no number of bytes")


def _require_source(source: object, what: str) -> None:
    if not isinstance(source, str) or not source.strip():
        raise BadCudaBody(f"{what} must have source text")


def _names(names: object, what: str) -> tuple[str, ...]:
    """A tuple of names. A string is refused, because it is a sequence of one-letter names."""
    found = names if isinstance(names, tuple | list) else (None,)
    if not all(isinstance(n, str) and n.isidentifier() for n in found):
        raise BadCudaBody(f"{what}={names!r} is no sequence of names of arguments")
    return tuple(found)
