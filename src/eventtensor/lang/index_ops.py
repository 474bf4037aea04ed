"""Arithmetic of objects that stand for an index expression.

These are elements of integer tensors, and the coordinates that a task body gets. The expressions
themselves are in ir/expr.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..errors import NonAffine
from ..ir.expr import (
    Compare,
    Const,
    Expr,
    Max,
    Min,
    Node,
    Prod,
    Sum,
    add,
    compare,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    wrap,
)
from ..ir.walk import walk

BinaryFn = Callable[[Node, Node], Node]


class IndexOps(ABC):
    """Operators over `as_expr()`. A subclass may wrap results (`wrap_result`). It may take
    operands that are no index expressions (`apply`)."""

    __slots__ = ()
    __hash__ = object.__hash__

    @abstractmethod
    def as_expr(self) -> Node:
        """The index expression that the object stands for."""

    def wrap_result(self, e: Node) -> Any:
        return e

    def apply(self, op: str, other: object, swap: bool = False) -> Any:
        if getattr(other, "is_tile", False):
            return NotImplemented
        a, b = self.as_expr(), wrap(other)  # type: ignore[arg-type]
        return self.wrap_result(INDEX_OPS[op](b, a) if swap else INDEX_OPS[op](a, b))

    def __add__(self, other: object) -> Any:
        return self.apply("add", other)

    def __radd__(self, other: object) -> Any:
        return self.apply("add", other, swap=True)

    def __sub__(self, other: object) -> Any:
        return self.apply("sub", other)

    def __rsub__(self, other: object) -> Any:
        return self.apply("sub", other, swap=True)

    def __mul__(self, other: object) -> Any:
        return self.apply("mul", other)

    def __rmul__(self, other: object) -> Any:
        return self.apply("mul", other, swap=True)

    def __floordiv__(self, other: object) -> Any:
        return self.apply("floordiv", other)

    def __rfloordiv__(self, other: object) -> Any:
        return self.apply("floordiv", other, swap=True)

    def __mod__(self, other: object) -> Any:
        return self.apply("mod", other)

    def __rmod__(self, other: object) -> Any:
        return self.apply("mod", other, swap=True)

    def __le__(self, other: object) -> Any:
        return self.apply("le", other)

    def __lt__(self, other: object) -> Any:
        return self.apply("lt", other)

    def __ge__(self, other: object) -> Any:
        return self.apply("ge", other)

    def __gt__(self, other: object) -> Any:
        return self.apply("gt", other)

    def __neg__(self) -> Any:
        return self.wrap_result(mul(wrap(-1), self.as_expr()))

    def __bool__(self) -> bool:
        return bool(self.as_expr())

    def tiles(self, size: int) -> Any:
        """Number of tiles of `size` that cover this extent."""
        return self.wrap_result(Expr.tiles(self.as_expr(), size))


def _sub(a: Node, b: Node) -> Node:
    return add(a, mul(wrap(-1), b))


INDEX_OPS: dict[str, BinaryFn] = {
    "add": add,
    "sub": _sub,
    "mul": mul,
    "floordiv": floordiv,
    "mod": mod,
    "le": lambda a, b: compare("<=", a, b),
    "lt": lambda a, b: compare("<=", add(a, wrap(1)), b),
    "ge": lambda a, b: compare("<=", b, a),
    "gt": lambda a, b: compare("<=", add(b, wrap(1)), a),
    "eq": lambda a, b: compare("==", a, b),
    "ne": lambda a, b: _sub(wrap(1), compare("==", a, b)),
    "min": minimum,
    "max": maximum,
}


def is_condition(e: Node) -> bool:
    """True for comparisons, and for `and`, `or` and `not` of them."""
    match e:
        case Compare() | Const(0 | 1):
            return True
        case Min(a, b) | Max(a, b):
            return is_condition(a) and is_condition(b)
        case Sum(((inner, -1),), 1):
            return is_condition(inner)
        case _:
            return False


def is_index(value: object) -> bool:
    """True for integers and for objects that stand for an index expression."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Expr) or hasattr(value, "as_expr") or hasattr(value, "__index__")


def reject_products(what: str, *exprs: Node) -> None:
    """Refuse products of two unknowns, because index maps and shapes must be affine."""
    for e in exprs:
        for node in walk(e):
            if isinstance(node, Prod):
                raise NonAffine(f"{what} has the product '{node}'")
