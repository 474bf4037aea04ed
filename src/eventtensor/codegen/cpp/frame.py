"""What a body is written into: named extents, loops, temporaries from the worker's arena."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...ir import tile as t
from ...ir.expr import Const, Node, product
from ...ir.program import PlacedCall, Program
from ..uses import analyse
from .args import ArgWriter, Target
from .dialect import Dialect
from .expr import ExprWriter
from .region import RegionWriter
from .value import STORAGE, Index, Value, View, ctype, of_view, scalar


class BodyFrame:
    """Memory, names and loops of one body that is being written; the ops are in BodyWriter."""

    def __init__(
        self, out: Dialect, expr: ExprWriter, program: Program, placed: PlacedCall
    ) -> None:
        self.out, self.expr, self.program, self.placed = out, expr, program, placed
        self.call = placed.call
        self.uses = analyse(self.call.body)
        self.left = self.uses.count.copy()
        self.values: dict[int, Value] = {}
        # Tiles of each open loop (the innermost last) that the body itself made.
        self.local: list[set[str]] = [set()]
        self._extents: list[dict[Node, str]] = [{}]
        self._count = 0
        regions = RegionWriter(out, expr, program, self.extent)
        self.args = ArgWriter(
            out, regions, program, self.call, placed.vars, self.temp, self.fill
        )
        self.targets: dict[int, Target] = {}
        self.reads: dict[int, Value] = {}

    def extent(self, e: Node) -> str:
        """A literal, or the name of a constant that holds the extent."""
        if isinstance(e, Const):
            return str(e.value)
        for scope in reversed(self._extents):
            if e in scope:
                return scope[e]
        name = f"e{self.number()}"
        self.out.line(f"const int64_t {name} = {self.expr(e)};")
        self._extents[-1][e] = name
        return name

    def number(self) -> int:
        self._count += 1
        return self._count

    def row_major(self, type: t.TileType) -> tuple[str, ...]:
        shape = type.shape
        return tuple(self.extent(product(shape[k + 1 :])) for k in range(len(shape)))

    @contextmanager
    def scope(self, head: str) -> Iterator[None]:
        self._extents.append({})
        with self.out.block(head):
            yield
        self._extents.pop()

    @contextmanager
    def loops(
        self, shape: tuple[Node, ...], independent: bool = True, to: View | None = None
    ) -> Iterator[Index]:
        """Nested loops over all indices; nothing may be declared inside but by the caller. `to` is
        what they assign, if its gathered rows may meet twice."""
        names = tuple(f"i{k}" for k in range(len(shape)))
        sizes = [self.extent(s) for s in shape]
        rows = () if to is None else (k for k in range(len(shape)) if to.table(k) is not None)
        with self.out.elements(names, sizes, independent, frozenset(rows)):
            yield names

    def temp(self, name: str, type: t.TileType, kind: str | None = None) -> View:
        """A dense tile in the arena."""
        strides = self.row_major(type)
        size = self.extent(product(type.shape))
        element = kind or ctype(type.dtype)
        self.out.take(name, element, size, product(type.shape))
        return View(name, strides, type.dtype, name, (), True)

    def own(self, name: str, type: t.TileType) -> View:
        """A dense tile that the body may change in place later."""
        self.local[-1].add(name)
        return self.temp(name, type)

    def fill(self, to: View, value: Value) -> None:
        """Assign element by element, rounding to the target's storage."""
        with self.loops(value.type.shape, independent=not to.tables, to=to) as index:
            text = value.at(index)
            if to.storage is not value.type.dtype:
                text = f"et::cast<{STORAGE[to.storage]}>({text})"
            self.out.line(f"{to.place(index)} = {text};")

    def stored(self, id: int, type: t.TileType, at: Callable[[Index], str]) -> Value:
        """Evaluate now: a constant for a 0-d value, else a tile of its own."""
        if not type.shape:
            self.out.line(f"const {ctype(type.dtype)} v{id} = {at(())};")
            return scalar(f"v{id}", type)
        view = self.own(f"v{id}", type)
        self.fill(view, Value(type, at))
        return of_view(view, type)

    def matrix(self, id: int) -> View:
        """Operand as memory with two strides."""
        value = self.values[id]
        if value.view is None or value.view.tables:
            view = self.temp(f"v{id}_dense", value.type)
            self.fill(view, value)
            return view
        return value.view

