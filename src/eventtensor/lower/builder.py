"""What a body is lowered into: statements, names, memory of the arena, loops over elements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..ir import tile as t
from ..ir.expr import Const, Node, Var, product
from ..ir.program import PlacedCall, Program
from ..ir.tensor import DType, Point
from ..ir.walk import free_vars
from ..kernel_ir import buffers as bf
from ..kernel_ir import scalar_values as v
from ..kernel_ir import statements as st
from ..kernel_ir.distributions import Linear
from ..kernel_ir.scopes import Space
from .tiles import Tile, as_stored, long_axes, of_view, scalar


class Builder:
    """Of one body. `threads` of a worker run it. In `debug` indices that data decides are
    reported when they lie outside."""

    def __init__(self, program: Program, placed: PlacedCall, threads: int, debug: bool) -> None:
        self.program, self.placed, self.call = program, placed, placed.call
        self.threads, self.debug = threads, debug
        self.body: list[st.Stmt] = []
        # Of each open block, the innermost last: expressions with a name, and tiles of its own.
        self.named: list[set[Node]] = [set()]
        self.local: list[set[str]] = [set()]
        self.loops: list[str] = []
        self.count = 0

    def emit(self, s: st.Stmt) -> None:
        self.body.append(s)

    def number(self) -> int:
        self.count += 1
        return self.count

    def extent(self, e: Node) -> None:
        """Gives an index expression a name, here and not in a loop that uses it."""
        if not isinstance(e, Const) and not any(e in scope for scope in self.named):
            self.emit(st.LetIndex(f"$e{self.number()}", e))
            self.named[-1].add(e)

    @contextmanager
    def iteration(self, var: str) -> Iterator[list[st.Stmt]]:
        """What is emitted goes to the body of a loop."""
        before, self.body = self.body, []
        self.named.append(set())
        self.loops.append(var)
        yield self.body
        self.loops.pop()
        self.named.pop()
        self.body = before

    # ---- memory --------------------------------------------------------------------------------

    def allocate(self, name: str, shape: tuple[Node, ...], dtype: DType) -> bf.View:
        """A dense tile in the arena."""
        for k in range(len(shape)):
            self.extent(product(shape[k + 1 :]))
        self.extent(product(shape))
        iteration = self.loops[-1] if self.loops else None
        view = bf.tile(name, bf.Buffer(name, Space.arena, dtype, shape, iteration))
        self.emit(st.Allocate(view))
        return view

    def own(self, name: str, type: t.TileType) -> bf.View:
        """A dense tile that the body may change in place later."""
        self.local[-1].add(name)
        return self.allocate(name, type.shape, type.dtype)

    def held(self, name: str, x: Tile) -> bf.View:
        """A dense tile that holds another one, as it is stored."""
        view = self.allocate(name, x.type.shape, x.stored_dtype or x.type.dtype)
        self.fill(view, x)
        return view

    def stored(self, id: int, x: Tile) -> Tile:
        """Computed now: a constant for one element, else a tile of its own."""
        if not long_axes(x.type):
            self.emit(st.Let(f"%{id}", x.at((Const(0),) * len(x.type.shape))))
            return scalar(v.Name(f"%{id}", x.type.dtype), x.type)
        if x.stored_dtype is None:
            self.local[-1].add(f"v{id}")
        return of_view(self.held(f"v{id}", x), x.type)

    # ---- loops over elements -------------------------------------------------------------------

    def indices(self, shape: tuple[Node, ...]) -> tuple[v.Index, tuple[st.Axis, ...]]:
        """An index into a tile, and the axes that need a loop: not those of one element."""
        axes = tuple(st.Axis(f"$i{k}", n) for k, n in enumerate(shape) if n != Const(1))
        for a in axes:
            self.extent(a.extent)
        index = tuple(Const(0) if n == Const(1) else Var(f"$i{k}") for k, n in enumerate(shape))
        return index, axes

    def fill(self, to: bf.View, x: Tile) -> None:
        """Assigns element by element, rounding to what is stored. Gathered rows may meet twice:
        one thread goes over them in order."""
        index, axes = self.indices(x.type.shape)
        value = rounded(x.at(index), to.buffer.dtype)
        self.emit(
            st.Elements(
                axes,
                Linear(),
                (st.Store(to, index, value),),
                rows_of(to, index, axes),
                independent=not to.tables,
            )
        )

    def add(self, to: bf.View, x: Tile, atomic: bool) -> None:
        """Adds element by element."""
        index, axes = self.indices(x.type.shape)
        self.emit(
            st.Elements(
                axes,
                Linear(),
                (st.Accumulate(to, index, x.at(index), atomic),),
                rows_of(to, index, axes),
                independent=False,
            )
        )

    # ---- parts of tiles ------------------------------------------------------------------------

    def part(
        self, base: bf.View, axes: tuple[t.SubAxis, ...], extents: tuple[Node, ...], name: str
    ) -> bf.View:
        """Of a view, at the axes of a sub-tile; points drop theirs. `extents` of the others."""
        firsts = tuple(first_of(a) for a in axes)
        if extents == base.extents and all(e == Const(0) for e in firsts):
            return base
        for e in firsts:
            self.extent(e)
        for n in base.extents:
            self.extent(n)
        dropped = frozenset(k for k, a in enumerate(axes) if isinstance(a, Point))
        clamped = frozenset(k for k, e in enumerate(firsts) if by_value(e))
        origin = bf.Part(base, firsts, dropped, clamped, self.debug)
        moved = any(
            e != Const(0) and s != Const(0) for e, s in zip(firsts, base.strides, strict=True)
        )
        if not moved and all(base.table(k) is None for k in dropped):
            return bf.part(base, base.name, origin, extents)
        view = bf.part(base, f"{name}_at{self.number()}", origin, extents)
        self.emit(st.Point(view))
        return view


def rounded(x: v.Scalar, dtype: DType) -> v.Scalar:
    """A value as it is stored."""
    stored = as_stored(x, dtype)
    if stored is not None:
        return stored
    return x if x.dtype is dtype else v.Cast(x, dtype)


def rows_of(to: bf.View, index: v.Index, axes: tuple[st.Axis, ...]) -> frozenset[int]:
    """The axes of a loop along which rows of a view are gathered."""
    gathered = {i for k, i in enumerate(index) if to.table(k) is not None}
    return frozenset(at for at, a in enumerate(axes) if Var(a.var) in gathered)


def first_of(axis: t.SubAxis) -> Node:
    return axis.index if isinstance(axis, Point) else axis.start


def by_value(e: Node) -> bool:
    """True if a value of the body decides it: then no proof says where it lies."""
    return any(name.startswith("%") for name in free_vars(e))
