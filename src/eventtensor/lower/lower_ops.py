"""The ops of the tile language: lazy tiles where that costs nothing, else loops into memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..ir import tile as t
from ..ir.expr import Const, Node, Var, add
from ..ir.ops import operands as op_operands
from ..ir.tensor import DType, Point, Slice
from ..kernel_ir import buffers as bf
from ..kernel_ir import scalar_values as v
from ..kernel_ir import statements as st
from ..kernel_ir.distributions import Linear
from . import tiles as tl
from .builder import Builder, by_value, first_of
from .folds import fold
from .operands import Target
from .tiles import Tile, of_view, scalar

LOWERED = (
    t.Arg,
    t.Literal,
    t.Index,
    t.Iota,
    t.Unary,
    t.Binary,
    t.Where,
    t.Cast,
    t.Broadcast,
    t.Transpose,
    t.Reshape,
    t.SliceOf,
    t.Reduce,
    t.ArgMax,
    t.Gather,
    t.Concat,
    t.Update,
    t.Scan,
    t.Histogram,
)


@dataclass
class Ops:
    """`values` by their numbers, with how many uses of each are `left`; `reads` are arguments, and
    `direct` the places of folds that are only stored."""

    b: Builder
    left: Counter[int]
    values: dict[int, Tile] = field(default_factory=dict)
    reads: dict[int, Tile] = field(default_factory=dict)
    direct: dict[int, Target] = field(default_factory=dict)

    def op(self, id: int, op: t.Op, type: t.TileType) -> Tile:
        value = self.values
        match op:
            case t.Arg(arg):
                x = self.reads[arg]
                return Tile(type, x.at, x.view, x.cheap)
            case t.Literal(literal):
                return scalar(v.Literal(literal, type.dtype), type)
            case t.Index(expr):
                return scalar(v.Number(expr, type.dtype), type)
            case t.Iota():
                return Tile(type, lambda index: v.Number(index[0], type.dtype))
            case t.Unary() | t.Binary() | t.Where() | t.Cast():
                return tl.elementwise(op, [value[x] for x in op_operands(op)], type)
            case t.Broadcast(x):
                return tl.broadcast(value[x], type)
            case t.Transpose(x, perm):
                return tl.transpose(value[x], perm, type)
            case t.Gather(x, index, axis):
                self.b.extent(value[x].type.shape[axis])
                return tl.gather(id, value[x], value[index], axis, type, self.b.debug)
            case t.Reduce(name, x, axis):
                return fold(self.b, id, name, value[x], axis, type, self.direct.get(id))
            case t.ArgMax(x):
                axis = len(type.shape)
                return fold(self.b, id, "argmax", value[x], axis, type, self.direct.get(id))
            case _:
                return self.moved(id, op, type)

    def moved(self, id: int, op: t.Op, type: t.TileType) -> Tile:
        """Ops that move elements."""
        match op:
            case t.Reshape(x):
                return self.reshape(id, self.values[x], type)
            case t.SliceOf(x, axes):
                return self.slice(id, self.values[x], axes, type)
            case t.Concat(xs, axis):
                return self.concat(id, [self.values[x] for x in xs], axis, type)
            case t.Update(x, axes, value):
                return self.update(id, x, axes, self.values[value], type)
            case t.Histogram(index, weights):
                sums = [self.values[x] for x in weights]
                return self.histogram(id, self.values[index], sums, type)
            case t.Scan(name, x, axis):
                return self.scan(id, name, self.values[x], axis, type)
            case _:
                raise AssertionError(f"{op} is not among the ops that are lowered")

    # ---- ops that move elements ----------------------------------------------------------------

    def store(self, view: bf.View, axes: tuple[t.SubAxis, ...], x: Tile, name: str) -> None:
        """Assigns a sub-tile."""
        self.b.fill(self.b.part(view, axes, x.type.shape, name), x)

    def reshape(self, id: int, x: Tile, type: t.TileType) -> Tile:
        if not tl.long_axes(type):
            return tl.one_element(x, type)
        view = x.view
        if view is None and x.cheap and tl.long_axes(x.type) == tl.long_axes(type):
            return tl.with_ones(x, type)
        split = None if view is not None else tl.split(x, type)
        if split is not None:
            return split
        if view is None or not view.dense:
            view = self.b.stored(id, x).view
            assert view is not None
        for k in range(len(type.shape)):
            self.b.extent(bf.row_major(type.shape)[k])
        return of_view(bf.reshaped(view, type.shape), type)

    def slice(self, id: int, x: Tile, axes: tuple[t.SubAxis, ...], type: t.TileType) -> Tile:
        if x.view is not None:
            return of_view(self.b.part(x.view, axes, type.shape, f"v{id}"), type)
        starts = []
        for k, a in enumerate(axes):
            first = first_of(a)
            self.b.extent(first)
            starts.append(self._clamped(id, k, first, a, x.type.shape[k]))
        return tl.slice_lazily(x, axes, tuple(starts), type)

    def _clamped(self, id: int, k: int, first: Node, axis: t.SubAxis, extent: Node) -> Node:
        """A start that a value of the body decides, kept inside the tile under a name."""
        if not by_value(first):
            return first
        most = extent if isinstance(axis, Point) else add(extent, Const(1))
        self.b.extent(most)
        name, start = f"$s{id}_{k}", v.Number(first, DType.i64)
        inner = v.Number(Var(f"{name}_in"), DType.i64)
        self.b.emit(st.Let(name, v.Pick(f"{name}_in", start, most, self.b.debug, inner)))
        return Var(name)

    def concat(self, id: int, xs: list[Tile], axis: int, type: t.TileType) -> Tile:
        result = self.b.own(f"v{id}", type)
        start: Node = Const(0)
        for x in xs:
            part = tuple(
                Slice(start if k == axis else Const(0), s) for k, s in enumerate(type.shape)
            )
            self.store(result, part, x, f"v{id}")
            start = add(start, x.type.shape[axis])
        return of_view(result, type)

    def update(
        self, id: int, x: int, axes: tuple[t.SubAxis, ...], value: Tile, type: t.TileType
    ) -> Tile:
        """In place if nobody reads the old tile any more."""
        old = self.values[x]
        if self.is_dead(x) and old.view is not None:
            tile = old.view
            if value.reads_buffer(tile.buffer.name):
                fresh = self.b.allocate(f"v{id}_new", value.type.shape, value.type.dtype)
                self.b.fill(fresh, value)
                value = of_view(fresh, value.type)
        else:
            tile = self.b.own(f"v{id}", type)
            self.b.fill(tile, old)
        self.store(tile, axes, value, f"v{id}")
        return of_view(tile, type)

    def scan(self, id: int, name: str, x: Tile, axis: int, type: t.TileType) -> Tile:
        """A thread goes along a line and keeps what it has summed up, or multiplied."""
        extent, result = type.shape[axis], self.b.own(f"v{id}", type)
        self.b.extent(extent)
        index, axes = self.b.indices(type.shape[:axis] + type.shape[axis + 1 :])
        at = (*index[:axis], Var(f"$k{id}"), *index[axis:])
        kept, op = v.Name(f"$v{id}_kept", type.dtype), {"sum": "add", "prod": "mul"}[name]
        first = v.Literal(0 if name == "sum" else 1, type.dtype)
        step = st.Assign(kept.name, v.Binary(op, kept, x.at(at)))
        line = st.For(f"$k{id}", extent, (step, st.Store(result, at, kept)))
        body = (st.Let(kept.name, first, changes=True), line)
        self.b.emit(st.Elements(axes, Linear(), body, independent=False))
        return of_view(result, type)

    def histogram(self, id: int, index: Tile, weights: list[Tile], type: t.TileType) -> Tile:
        extent, at = index.type.shape[0], (Var(f"$k{id}"),)
        self.b.extent(extent)
        self.b.extent(type.shape[1])
        result = self.b.own(f"v{id}", type)
        found = tuple(x.at(at) for x in weights)
        self.b.emit(st.Histogram(result, f"$k{id}", extent, index.at(at), found))
        return of_view(result, type)

    def is_dead(self, x: int) -> bool:
        """True if x is a whole tile of the body's own that no later statement can see."""
        view = self.values[x].view
        if view is None or view.origin is not None or self.left[x] > 0:
            return False
        if view.buffer.name not in self.b.local[-1]:
            return False
        return not any(
            self.left[y] > 0 and other.reads_buffer(view.buffer.name)
            for y, other in self.values.items()
            if y != x
        )
