"""Tile values during code generation: how to read one element, as C++ text.

A value is a view (memory with strides) or lazy (an expression of other values, put into the loop
that reads it). `leaves` are the buffers it reads; True if only at the element's own index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from ...ir.elementwise import FUNCTIONS
from ...ir.expr import Const, Node
from ...ir.products import merged_axes
from ...ir.tensor import DType
from ...ir.tile import TileType
from ...render.dtypes import STORAGE as STORAGE
from ...render.dtypes import ctype as ctype
from ...render.dtypes import literal as literal

Index = tuple[str, ...]
At = Callable[[Index], str]
Leaves = Mapping[str, bool]

@dataclass(frozen=True, slots=True)
class View:
    """Elements at `data[sum(index * stride)]`; an axis of gathered rows has a table of offsets
    instead of a stride. `dense` means row-major without gaps."""

    data: str
    strides: tuple[str, ...]
    storage: DType
    buffer: str
    tables: tuple[str | None, ...] = ()
    dense: bool = False

    def table(self, axis: int) -> str | None:
        return self.tables[axis] if self.tables else None

    def place(self, index: Index) -> str:
        """The element as an lvalue."""
        terms = []
        for k, i in enumerate(index):
            table = self.table(k)
            if table is not None:
                terms.append(f"{table}[{i}]")
            elif self.strides[k] != "0" and i != "0":
                terms.append(i if self.strides[k] == "1" else f"{_factor(i)} * {self.strides[k]}")
        return f"{self.data}[{' + '.join(terms) or '0'}]"

    def at(self, index: Index) -> str:
        text = self.place(index)
        return text if self.storage is self.storage.tile_dtype else f"et::value({text})"


def _factor(text: str) -> str:
    return text if text.isalnum() else f"({text})"


@dataclass(frozen=True, slots=True)
class Value:
    """`cheap` values cost nothing to read again. One with a `storage` has elements which that dtype
    holds exactly, and its text is `et::value(..)` of the stored element."""

    type: TileType
    at: At
    leaves: Leaves = field(default_factory=dict)
    view: View | None = None
    cheap: bool = True
    storage: DType | None = None

    def stored_at(self, index: Index) -> str:
        """The element as it is stored."""
        text = self.at(index)
        return text if self.storage is None else text.removeprefix("et::value(")[:-1]

    @property
    def is_scalar(self) -> bool:
        return not self.type.shape


def of_view(view: View, type: TileType) -> Value:
    return Value(type, view.at, {view.buffer: True}, view, storage=packed(view.storage))


def packed(dtype: DType) -> DType | None:
    """The dtype, if it is one that tiles are stored in but not computed in."""
    return None if dtype is dtype.tile_dtype else dtype


def scalar(text: str, type: TileType) -> Value:
    return Value(type, lambda _: text)


def merged(*leaves: Leaves) -> Leaves:
    out: dict[str, bool] = {}
    for some in leaves:
        for name, same in some.items():
            out[name] = out.get(name, True) and same
    return out


def elsewhere(leaves: Leaves) -> Leaves:
    """The same buffers, read at other indices than the result's."""
    return dict.fromkeys(leaves, False)


def broadcast(x: Value, type: TileType) -> Value:
    """Aligned at the last axis; axes of extent 1 repeat."""
    skip = len(type.shape) - len(x.type.shape)
    ones = [s == Const(1) for s in x.type.shape]

    def at(index: Index) -> str:
        return x.at(tuple("0" if one else i for one, i in zip(ones, index[skip:], strict=True)))

    view = None
    if x.view is not None and not x.view.tables:
        strides = ("0" if one else s for one, s in zip(ones, x.view.strides, strict=True))
        view = replace(x.view, strides=("0",) * skip + tuple(strides), dense=False)
    return Value(type, at, elsewhere(x.leaves), view, x.cheap, x.storage)


def long_axes(type: TileType) -> list[Node]:
    """The extents that are not always 1."""
    return [s for s in type.shape if s != Const(1)]


def with_ones(x: Value, type: TileType) -> Value:
    """A lazy value whose axes of extent 1 come and go."""

    def at(index: Index) -> str:
        rest = iter(i for i, s in zip(index, type.shape, strict=True) if s != Const(1))
        return x.at(tuple("0" if s == Const(1) else next(rest) for s in x.type.shape))

    return replace(x, type=type, at=at, leaves=elsewhere(x.leaves))


def cut_axes(
    shape: tuple[Node, ...], new: tuple[Node, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """Of a reshape that only cuts axes into several, of constant extents but the first of each: for
    each axis, how many of its elements one step of each new one is."""
    groups = merged_axes(tuple((k,) for k in range(len(new))), new, shape)
    if groups is None or not all(isinstance(new[k], Const) for g in groups for k in g[1:]):
        return None
    return tuple(tuple(prod(int(str(new[j])) for j in g if j > k) for k in g) for g in groups)


def split(x: Value, type: TileType) -> Value | None:
    """A lazy value with axes cut into several."""
    cut = cut_axes(x.type.shape, type.shape)
    if cut is None:
        return None

    def at(index: Index) -> str:
        found, rest = [], iter(index)
        for steps in cut:
            terms = [i if n == 1 else f"{i} * {n}" for n, i in zip(steps, rest, strict=False)
                     if i != "0"]
            found.append(" + ".join(terms) or "0")
        return x.at(tuple(found))

    return Value(type, at, elsewhere(x.leaves), None, x.cheap, x.storage)


def transpose(x: Value, perm: tuple[int, ...], type: TileType) -> Value:
    def at(index: Index) -> str:
        back = [""] * len(perm)
        for k, p in enumerate(perm):
            back[p] = index[k]
        return x.at(tuple(back))

    view = None
    if x.view is not None:
        v = x.view
        tables = tuple(v.table(p) for p in perm) if v.tables else ()
        strides = tuple(v.strides[p] for p in perm)
        view = replace(v, strides=strides, tables=tables, dense=False)
    return Value(type, at, elsewhere(x.leaves), view, x.cheap, x.storage)


# ---- text of scalar operations -------------------------------------------------------------




def elementwise(name: str, operands: list[str], dtype: DType) -> str:
    """`dtype` is that of the operands."""
    return FUNCTIONS[name].text(operands, dtype, ctype(dtype))


def cast(x: str, dtype: DType) -> str:
    text = f"et::cast<{STORAGE[dtype]}>({x})"
    return text if dtype is dtype.tile_dtype else f"et::value({text})"
