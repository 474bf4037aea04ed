"""Typed scalar expressions: what a thread computes. A closed union, `Scalar`.

Index expressions (ir/expr.py) stay apart: they are integers over dims, coordinates, loop variables
and values of the body. Names that lowering makes begin with `$`, values of the tile IR with `%`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.elementwise import FUNCTIONS
from ..ir.expr import Node
from ..ir.tensor import DType
from .buffers import View
from .scopes import Scope

Index = tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """Equal means the same text: nan equals nan, and -0.0 is not 0.0."""

    value: float | int | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (repr(self.value), self.dtype) == (
            repr(other.value),
            other.dtype,
        )

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))


@dataclass(frozen=True, slots=True)
class Name:
    """What a Let has bound."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Number:
    """An index expression as a value."""

    expr: Node
    dtype: DType


@dataclass(frozen=True, slots=True)
class Unary:
    """A function of ir/elementwise.py."""

    op: str
    x: Scalar

    @property
    def dtype(self) -> DType:
        return FUNCTIONS[self.op].result(self.x.dtype)


@dataclass(frozen=True, slots=True)
class Binary:
    op: str
    a: Scalar
    b: Scalar

    @property
    def dtype(self) -> DType:
        return FUNCTIONS[self.op].result(self.b.dtype)


@dataclass(frozen=True, slots=True)
class Choose:
    condition: Scalar
    a: Scalar
    b: Scalar

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@dataclass(frozen=True, slots=True)
class Cast:
    """To `dtype`, which may be one that is stored but not computed with."""

    x: Scalar
    dtype: DType


@dataclass(frozen=True, slots=True)
class Widen:
    """A stored element as it is computed with: bf16 and f16 as f32, u8 as i32."""

    x: Scalar

    @property
    def dtype(self) -> DType:
        return self.x.dtype.tile_dtype


@dataclass(frozen=True, slots=True)
class Element:
    """As it is stored."""

    view: View
    index: Index

    @property
    def dtype(self) -> DType:
        return self.view.buffer.dtype


@dataclass(frozen=True, slots=True)
class Pick:
    """`inner`, in which the index variable `var` is a value kept inside 0..extent. `checked`: one
    outside is reported too."""

    var: str
    value: Scalar
    extent: Node
    checked: bool
    inner: Scalar

    @property
    def dtype(self) -> DType:
        return self.inner.dtype


@dataclass(frozen=True, slots=True)
class Fold:
    """`value` for `var` = 0 .. extent-1, folded by `op`. The order of a sum is a part of its
    meaning (ir/tile.py): 16 strided lanes, then a halving tree. `shared` says by whom: a thread
    alone, or the 16 threads of a half-warp, who converge in it; the first of them has the result.
    """

    op: str
    shared: Scope
    var: str
    extent: Node
    value: Scalar

    @property
    def dtype(self) -> DType:
        return DType.i32 if self.op == "argmax" else self.value.dtype


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The value that the first thread of a scope has, in all of them."""

    scope: Scope
    x: Scalar

    @property
    def dtype(self) -> DType:
        return self.x.dtype


Scalar = (
    Literal
    | Name
    | Number
    | Unary
    | Binary
    | Choose
    | Cast
    | Widen
    | Element
    | Pick
    | Fold
    | Broadcast
)
