"""Infers the declarations of an `et.CudaBody` from a bare CUDA source.

Most sources need none. `loader=`, lines that take scratch from the arena, and calls for persistent
shared memory are the old ways to declare them. They still work, with a DeprecationWarning.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable

from ..ir.cuda_body import CudaBody, Producer, Scratch
from ..ir.cuda_body_check import DEVICE_FUNCTIONS, calls, names_in
from ..ir.tensor import DType

_ALLOCATION = re.compile(
    r"[ \t]*(\S+)\* const (\w+) = " + re.escape(DEVICE_FUNCTIONS["scratch"])
    + r"<\1>\(([\w *+]+)\);[ \t]*")
_DTYPES = {"float": DType.f32, "et::bf16": DType.bf16, "et::f16": DType.f16,
           "int32_t": DType.i32, "int64_t": DType.i64, "uint8_t": DType.u8}
_PERSISTENT_BYTES_PER_WARP = 8 * 1024  # the size before sources declared one


def infer_cuda_body(source: str, loader: str | None, body: Callable[..., object]) -> CudaBody:
    """The body of a source, with the declarations that its calls imply."""
    code, scratch = _split_scratch(source)
    persistent = calls(source, "persistent_bytes_per_warp")
    operands = [p for p in inspect.signature(body).parameters if p in names_in(loader or "")]
    given = [
        *(f"et.Scratch('{s.name}', et.{s.dtype}, '{s.count}')" for s in scratch),
        *([f"persistent_bytes_per_warp={_PERSISTENT_BYTES_PER_WARP}"] if persistent else []),
        *([f"producer=et.Producer(source, {tuple(operands)})"] if loader is not None else []),
    ]
    if given:
        warnings.warn(f"declare what a CUDA body does: et.CudaBody(source, .. {', '.join(given)})",
                      DeprecationWarning, stacklevel=4)
    return CudaBody(
        code,
        persistent_bytes_per_warp=_PERSISTENT_BYTES_PER_WARP if persistent else 0,
        scratch=scratch,
        producer=None if loader is None else Producer(loader, tuple(operands)),
    )


def _split_scratch(source: str) -> tuple[str, tuple[Scratch, ...]]:
    code: list[str] = []
    scratch: list[Scratch] = []
    for line in source.split("\n"):
        allocation = _ALLOCATION.fullmatch(line)
        if allocation is not None and allocation[1] in _DTYPES:
            scratch.append(Scratch(allocation[2], _DTYPES[allocation[1]], allocation[3]))
        else:
            code.append(line)
    return "\n".join(code), tuple(scratch)
