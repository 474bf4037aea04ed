"""One workspace for all scratch tensors, and one for words; exact sizes are known from the dims."""

from __future__ import annotations

from ..ir.expr import Const, Node, add, floordiv, mul, product
from ..ir.plan import Buffer
from ..ir.program import Program
from ..ir.tensor import Role, Tensor

ALIGN = 64


def layout(
    program: Program, flagged: frozenset[str] = frozenset()
) -> tuple[tuple[Buffer, ...], Node]:
    """Scratch tensors (but the flagged) one after the other, each aligned to a cache line."""
    plain = [t for t in program.tensors if t.role is Role.scratch and t.name not in flagged]
    return _one_after_the_other([(t, t.dtype.size) for t in plain])


def word_layout(program: Program, flagged: frozenset[str]) -> tuple[tuple[Buffer, ...], Node]:
    """Tensors whose elements carry flags, a word each. They have memory of their own: what a float
    left behind could look like a flag, and offsets move with the dims."""
    return _one_after_the_other(
        [(t, t.dtype.tagged_bytes) for t in program.tensors if t.name in flagged]
    )


def _one_after_the_other(
    tensors: list[tuple[Tensor, int]]
) -> tuple[tuple[Buffer, ...], Node]:
    buffers = []
    offset: Node = Const(0)
    for t, element in tensors:
        exact = mul(product(t.shape), Const(element))
        size = mul(floordiv(add(exact, Const(ALIGN - 1)), ALIGN), Const(ALIGN))
        buffers.append(Buffer(t.name, offset, size))
        offset = add(offset, size)
    return tuple(buffers), offset
