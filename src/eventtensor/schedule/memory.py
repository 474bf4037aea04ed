"""One workspace for all scratch tensors; its exact size is known from the dims."""

from __future__ import annotations

from ..ir.expr import Const, Node, add, floordiv, mul, product
from ..ir.plan import Buffer
from ..ir.program import Program
from ..ir.tensor import Role

ALIGN = 64


def layout(program: Program) -> tuple[tuple[Buffer, ...], Node]:
    """Scratch tensors one after the other, each aligned to a cache line."""
    buffers = []
    offset: Node = Const(0)
    for t in program.tensors:
        if t.role is Role.scratch:
            exact = mul(product(t.shape), Const(t.dtype.size))
            size = mul(floordiv(add(exact, Const(ALIGN - 1)), ALIGN), Const(ALIGN))
            buffers.append(Buffer(t.name, offset, size))
            offset = add(offset, size)
    return tuple(buffers), offset
