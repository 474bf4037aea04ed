"""What a body is written into: named extents, loops, temporaries from the worker's arena."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

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
        self.temps: set[str] = set()  # names of what lies in the arena
        self.targets: dict[int, Target] = {}
        self.reads: dict[int, Value] = {}
        # Writes what an iteration of a loop begins with: waits for the chunks that it reads.
        self.enter: Callable[[t.For], None] = lambda loop: None

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
        index, kept, sizes = self.indices(shape)
        rows = (at for at, k in enumerate(kept) if to is not None and to.table(k) is not None)
        with self.out.elements([index[k] for k in kept], sizes, independent, frozenset(rows)):
            yield index

    def indices(self, shape: tuple[Node, ...]) -> tuple[Index, list[int], list[str]]:
        """An index into a tile, the axes that need a loop (not of one element), their sizes."""
        index = tuple("0" if s == Const(1) else f"i{k}" for k, s in enumerate(shape))
        kept = [k for k, i in enumerate(index) if i != "0"]
        return index, kept, [self.extent(shape[k]) for k in kept]

    def temp(self, name: str, type: t.TileType, kind: str | None = None) -> View:
        """A dense tile in the arena."""
        strides = self.row_major(type)
        size = self.extent(product(type.shape))
        element = kind or ctype(type.dtype)
        self.out.take(name, element, size, product(type.shape))
        self.temps.add(name)
        return View(name, strides, type.dtype, name, (), True)

    def held(self, name: str, value: Value) -> View:
        """A dense tile that holds a value as it is stored."""
        if value.storage is None:
            view = self.temp(name, value.type)
        else:
            made = self.temp(name, value.type, STORAGE[value.storage])
            view = replace(made, storage=value.storage)
        self.fill(view, value)
        return view

    def own(self, name: str, type: t.TileType) -> View:
        """A dense tile that the body may change in place later."""
        self.local[-1].add(name)
        return self.temp(name, type)

    def fill(self, to: View, value: Value) -> None:
        """Assign element by element, rounding to the target's storage."""
        with self.loops(value.type.shape, independent=not to.tables, to=to) as index:
            if to.storage is value.storage:
                text = value.stored_at(index)
            elif to.storage is value.type.dtype:
                text = value.at(index)
            else:
                text = f"et::cast<{STORAGE[to.storage]}>({value.at(index)})"
            self.out.line(f"{to.place(index)} = {text};")

    def stored(self, id: int, value: Value) -> Value:
        """Evaluate now: a constant for a 0-d value, else a tile of its own."""
        type = value.type
        if value.is_scalar:
            self.out.line(f"const {ctype(type.dtype)} v{id} = {value.at(())};")
            return scalar(f"v{id}", type)
        if value.storage is None:
            self.local[-1].add(f"v{id}")
        return of_view(self.held(f"v{id}", value), type)

    def matrix(self, id: int) -> View:
        """Operand as memory with two strides."""
        value = self.values[id]
        if value.view is None or value.view.tables:
            return self.held(f"v{id}_dense", value)
        return value.view

