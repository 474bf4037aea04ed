"""Values and places as text that C++ and CUDA share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import assert_never

from ..ir.elementwise import FUNCTIONS
from ..ir.expr import Const, Node, Var
from ..kernel_ir import scalar_values as v
from ..kernel_ir.buffers import Form, View
from ..kernel_ir.names import cpp_name
from ..kernel_ir.scopes import Scope
from .dtypes import STORAGE, ctype, literal
from .index_text import ExprWriter

# Names in device/numerics.h and in device/cuda/ops/reduce.cuh.
_FOLDS = {
    ("sum", Scope.thread): "lane_sum", ("sum", Scope.half_warp): "half_sum",
    ("max", Scope.thread): "fold_max", ("max", Scope.half_warp): "half_max",
    ("min", Scope.thread): "fold_min", ("min", Scope.half_warp): "half_min",
    ("argmax", Scope.thread): "arg_max", ("argmax", Scope.half_warp): "half_arg_max",
}  # fmt: skip


@dataclass(frozen=True)
class ScalarWriter(ExprWriter):
    """Index expressions that have a name go by it."""

    names: dict[Node, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)  # text of names that are no identifiers

    def __call__(self, e: Node) -> str:
        return self.names[e] if e in self.names else super().__call__(e)

    @contextmanager
    def naming(self, e: Node, text: str) -> Iterator[None]:
        before = self.names.get(e)
        self.names[e] = text
        yield
        if before is None:
            del self.names[e]
        else:
            self.names[e] = before

    def value(self, x: v.Scalar) -> str:
        match x:
            case v.Literal(value, dtype):
                return literal(value, dtype)
            case v.Name(name, _):
                return self.values.get(name, cpp_name(name))
            case v.Number(expr, dtype):
                return f"{ctype(dtype)}({self(expr)})"
            case v.Unary(op, a):
                return FUNCTIONS[op].text([self.value(a)], a.dtype, ctype(a.dtype))
            case v.Binary(op, a, b):
                return FUNCTIONS[op].text([self.value(a), self.value(b)], b.dtype, ctype(b.dtype))
            case v.Choose(c, a, b):
                return f"({self.value(c)} ? {self.value(a)} : {self.value(b)})"
            case v.Cast(a, dtype):
                return f"et::cast<{STORAGE[dtype]}>({self.value(a)})"
            case v.Widen(a):
                return f"et::value({self.value(a)})"
            case v.Element(view, index):
                return self.place(view, index)
            case v.Pick(var, value, extent, checked, inner):
                pick = self.inside(f"int64_t({self.value(value)})", extent, checked)
                with self.naming(Var(var), pick):
                    return self.value(inner)
            case v.Fold():
                return self._fold(x)
            case v.Broadcast(Scope.half_warp, a):
                return f"et::from_first({self.value(a)})"
            case v.Broadcast(scope, _):
                raise AssertionError(f"no device function broadcasts over a {scope.name}")
            case _:
                assert_never(x)

    def inside(self, index: str, extent: Node, checked: bool) -> str:
        """An index kept below an extent."""
        if checked:
            return f"et::index_checked(worker, {index}, {self(extent)})"
        return f"et::index_clamped({index}, {self(extent)})"

    def _fold(self, x: v.Fold) -> str:
        name, var = _FOLDS[x.op, x.shared], cpp_name(x.var)
        element = f"[&](int64_t {var}) {{ return {self.value(x.value)}; }}"
        return f"et::{name}<{ctype(x.value.dtype)}>({self(x.extent)}, {element})"

    # ---- places --------------------------------------------------------------------------------

    def data(self, view: View) -> str:
        """The pointer of a view."""
        match view.form:
            case Form.pointer:
                return view.name
            case Form.descriptor:
                return f"{view.name}.data"
            case Form.tagged:
                return f"{view.name}_words"
            case _:
                assert_never(view.form)

    def place(self, view: View, index: v.Index) -> str:
        """An element as an lvalue."""
        terms = []
        for k, e in enumerate(index):
            table, i, stride = view.table(k), self(e), view.strides[k]
            if table is not None:
                terms.append(f"{self.table(table.name, table.start)}[{i}]")
            elif stride != Const(0) and e != Const(0):
                terms.append(i if stride == Const(1) else f"{factor(i)} * {factor(self(stride))}")
        return f"{self.data(view)}[{' + '.join(terms) or '0'}]"

    def table(self, name: str, start: Node) -> str:
        return name if start == Const(0) else f"({name} + {self(start)})"


def factor(text: str) -> str:
    """Parentheses, unless the text is a name, a number or a member."""
    plain = text.replace(".", "").replace("_", "").replace("[", "").replace("]", "").isalnum()
    return text if plain else f"({text})"
