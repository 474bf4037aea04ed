"""Tiles while a body is lowered: how to compute one element.

A tile is a view, or lazy: an expression of other tiles, computed in the loop that reads it. Views
and lazy tiles cost nothing; memory is taken in lower/builder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from ..ir import tile as t
from ..ir.expr import Const, Node, Var, add, mul
from ..ir.products import merged_axes
from ..ir.tensor import DType, Point
from ..kernel_ir import buffers as bf
from ..kernel_ir import scalar_values as v
from ..kernel_ir.traversal import walk

At = Callable[[v.Index], v.Scalar]


@dataclass(frozen=True, slots=True)
class Tile:
    """`cheap` tiles cost nothing to read again."""

    type: t.TileType
    at: At
    view: bf.View | None = None
    cheap: bool = True

    @property
    def is_scalar(self) -> bool:
        return not self.type.shape

    @property
    def sample(self) -> v.Scalar:
        """The value at an index that stands for any."""
        return self.at(sample_index(self.type.shape))

    @property
    def stored_dtype(self) -> DType | None:
        """The dtype of which elements are widened, if they are."""
        x = self.sample
        while isinstance(x, v.Pick):
            x = x.inner
        return x.x.dtype if isinstance(x, v.Widen) else None

    def reads(self) -> Iterator[v.Element]:
        return (x for x in walk(self.sample) if isinstance(x, v.Element))

    def reads_own(self, buffer: str) -> bool:
        """True if it reads elements of a buffer at its own index alone."""
        own = sample_index(self.type.shape)
        return all(
            x.index == own and x.view.origin is None
            for x in self.reads()
            if x.view.buffer.name == buffer
        )

    def reads_buffer(self, buffer: str) -> bool:
        return any(x.view.buffer.name == buffer for x in self.reads())


def sample_index(shape: tuple[Node, ...]) -> v.Index:
    return tuple(Const(0) if n == Const(1) else Var(f"$p{k}") for k, n in enumerate(shape))


def of_view(view: bf.View, type: t.TileType) -> Tile:
    dtype = view.buffer.dtype
    if dtype is dtype.tile_dtype:
        return Tile(type, lambda index: v.Element(view, index), view)
    return Tile(type, lambda index: v.Widen(v.Element(view, index)), view)


def scalar(value: v.Scalar, type: t.TileType) -> Tile:
    return Tile(type, lambda _: value)


def as_stored(x: v.Scalar, dtype: DType) -> v.Scalar | None:
    """The stored element of this dtype of which a value was made, if it was."""
    match x:
        case v.Widen(y) if y.dtype is dtype:
            return y
        case v.Pick(inner=inner):
            stored = as_stored(inner, dtype)
            return None if stored is None else replace(x, inner=stored)
        case _:
            return None


def long_axes(type: t.TileType) -> list[Node]:
    """The extents that are not always 1."""
    return [s for s in type.shape if s != Const(1)]


# ---- tiles made of one other -----------------------------------------------------------------


def elementwise(
    op: t.Unary | t.Binary | t.Where | t.Cast, args: list[Tile], type: t.TileType
) -> Tile:
    def at(index: v.Index) -> v.Scalar:
        x = [a.at(index) for a in args]
        match op:
            case t.Unary(name, _):
                return v.Unary(name, x[0])
            case t.Binary(name, _, _):
                return v.Binary(name, x[0], x[1])
            case t.Where():
                return v.Choose(x[0], x[1], x[2])
            case t.Cast(_, to):
                cast = v.Cast(x[0], to)
                return cast if to is to.tile_dtype else v.Widen(cast)

    return Tile(type, at, cheap=False)


def broadcast(x: Tile, type: t.TileType) -> Tile:
    """Aligned at the last axis; axes of extent 1 repeat."""
    skip = len(type.shape) - len(x.type.shape)
    ones = [s == Const(1) for s in x.type.shape]

    def at(index: v.Index) -> v.Scalar:
        own = zip(ones, index[skip:], strict=True)
        return x.at(tuple(Const(0) if one else i for one, i in own))

    view = None
    if x.view is not None and not x.view.tables:
        view = bf.repeated(x.view, type.shape)
    return Tile(type, at, view, x.cheap)


def transpose(x: Tile, perm: tuple[int, ...], type: t.TileType) -> Tile:
    def at(index: v.Index) -> v.Scalar:
        back: list[Node] = [Const(0)] * len(perm)
        for k, p in enumerate(perm):
            back[p] = index[k]
        return x.at(tuple(back))

    return Tile(type, at, None if x.view is None else bf.permuted(x.view, perm), x.cheap)


def slice_lazily(
    x: Tile, axes: tuple[t.SubAxis, ...], starts: tuple[Node, ...], type: t.TileType
) -> Tile:
    def at(index: v.Index) -> v.Scalar:
        rest = iter(index)
        return x.at(
            tuple(
                start if isinstance(a, Point) else add(start, next(rest))
                for a, start in zip(axes, starts, strict=True)
            )
        )

    return Tile(type, at, None, x.cheap)


def gather(id: int, x: Tile, index: Tile, axis: int, type: t.TileType, checked: bool) -> Tile:
    rank, extent, var = len(index.type.shape), x.type.shape[axis], f"$g{id}"

    def at(i: v.Index) -> v.Scalar:
        inner = x.at((*i[:axis], Var(var), *i[axis + rank :]))
        return v.Pick(var, index.at(i[axis : axis + rank]), extent, checked, inner)

    return Tile(type, at, cheap=False)


# ---- other shapes ------------------------------------------------------------------------------


def one_element(x: Tile, type: t.TileType) -> Tile:
    zeros = (Const(0),) * len(x.type.shape)
    return Tile(type, lambda _: x.at(zeros), None, x.cheap)


def with_ones(x: Tile, type: t.TileType) -> Tile:
    """A lazy tile whose axes of extent 1 come and go."""

    def at(index: v.Index) -> v.Scalar:
        rest = iter(i for i, s in zip(index, type.shape, strict=True) if s != Const(1))
        return x.at(tuple(Const(0) if s == Const(1) else next(rest) for s in x.type.shape))

    return replace(x, type=type, at=at)


def split(x: Tile, type: t.TileType) -> Tile | None:
    """A lazy tile with axes cut into several, of constant extents but the first of each."""
    new = type.shape
    groups = merged_axes(tuple((k,) for k in range(len(new))), new, x.type.shape)
    if groups is None or not all(isinstance(new[k], Const) for g in groups for k in g[1:]):
        return None
    cut = tuple(tuple(prod(int(str(new[j])) for j in g if j > k) for k in g) for g in groups)

    def at(index: v.Index) -> v.Scalar:
        found, rest = list[Node](), iter(index)
        for steps in cut:
            place: Node = Const(0)
            for step in steps:
                place = add(place, mul(Const(step), next(rest)))
            found.append(place)
        return x.at(tuple(found))

    return Tile(type, at, None, x.cheap)
