"""Index expressions as C++ text of type int64_t, with floor semantics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from ..ir.expr import (
    Compare,
    Const,
    Dim,
    FloorDiv,
    Load,
    Max,
    Min,
    Mod,
    Node,
    Prod,
    Select,
    Sum,
    Var,
    product,
)
from ..ir.program import Program
from ..kernel_ir.names import cpp_name
from .dtypes import STORAGE

_ATOM = re.compile(r"[\w.:<>]*\w(\([^()]*\)|\[[^\[\]]*\])?")


def paren(text: str) -> str:
    """Parentheses unless the text is one operand already."""
    return text if _ATOM.fullmatch(text) else f"({text})"


@dataclass(frozen=True)
class ExprWriter:
    """Dims are members of `args`, variables locals; run-time loads read tensors of `args` (those
    that are `flagged` by words), through a check of index and bound when `debug` (which needs
    `worker` in scope)."""

    program: Program
    debug: bool = False
    flagged: frozenset[str] = frozenset()

    def __call__(self, e: Node) -> str:
        match e:
            case Const(v):
                return str(v)
            case Dim(name, _, _):
                return f"args.{cpp_name(name)}"
            case Var(name):
                return cpp_name(name)
            case Sum(terms, const):
                return self._sum(terms, const)
            case Prod(factors):
                return " * ".join(paren(self(f)) for f in factors)
            case FloorDiv(a, k):
                return f"et::div({self(a)}, {k})"
            case Mod(a, k):
                return f"et::mod({self(a)}, {k})"
            case Min(a, b):
                return f"std::min<int64_t>({self(a)}, {self(b)})"
            case Max(a, b):
                return f"std::max<int64_t>({self(a)}, {self(b)})"
            case Load():
                return self._load(e)
            case Compare(op, a, b):
                return f"int64_t({self(a)} {op} {self(b)})"
            case Select(c, a, b):
                return f"({self.condition(c)} ? int64_t({self(a)}) : int64_t({self(b)}))"
            case _:
                assert_never(e)

    def condition(self, e: Node) -> str:
        """Text that is tested, not counted."""
        if isinstance(e, Compare):
            return f"{self(e.a)} {e.op} {self(e.b)}"
        return self(e)

    def _sum(self, terms: tuple[tuple[Node, int], ...], const: int) -> str:
        out = ""
        for t, c in terms:
            body = self(t) if isinstance(t, Prod) else paren(self(t))
            if abs(c) != 1:
                body = f"{body} * {abs(c)}"
            sign = " - " if c < 0 else " + "
            out += sign + body if out else ("-" if c < 0 else "") + body
        if const:
            out += f" {'-' if const < 0 else '+'} {abs(const)}"
        return out

    def _load(self, e: Load) -> str:
        tensor = self.program.tensor(e.tensor)
        at = self.linear([self(i) for i in e.index], tensor.shape)
        data = f"args.{cpp_name(e.tensor)}"
        if e.tensor in self.flagged:
            return f"et::number_in<{STORAGE[tensor.dtype]}>({data}[{at}])"
        if not self.debug:
            return f"int64_t({data}[{at}])"
        size = self(product(tensor.shape))
        lo, hi = (
            (self(tensor.bound[0]), self(tensor.bound[1]))
            if tensor.bound is not None
            else ("INT64_MIN", "INT64_MAX")
        )
        name = f"TENSOR_{e.tensor}"
        return f"et::load_checked(worker, {data}, {at}, {size}, {lo}, {hi}, {name})"

    def linear(self, index: Sequence[str], shape: Sequence[Node]) -> str:
        """Row-major position of an index."""
        out = "0"
        for k, (i, n) in enumerate(zip(index, shape, strict=True)):
            if k == 0 or out == "0":
                out = i
            else:
                size = self(n)
                out = f"{paren(out)} * {paren(size)}"
                out = out if i == "0" else f"{out} + {paren(i)}"
        return out

    def stride(self, shape: Sequence[Node], axis: int) -> str:
        """Row-major stride of an axis, in elements."""
        return self(product(tuple(shape[axis + 1 :])))
