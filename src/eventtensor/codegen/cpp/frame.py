"""What a body is written into: named extents, loops, temporaries from the worker's arena; and what
stands before its work: the waits, with what can be read ahead of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ...ir import tile as t
from ...ir.availability import DataAvailability
from ...ir.body_uses import analyse, read_arguments
from ...ir.expr import Const, Load, Node, product
from ...ir.plan import Wait
from ...ir.program import PlacedCall, Program
from ...ir.tensor import DType, Region, Rows, region_exprs
from ...ir.walk import loads_of
from ...render.index_text import ExprWriter
from .args import ArgWriter, Target
from .dialect import Dialect
from .early import place_loads
from .region import RegionWriter
from .sync import SyncWriter
from .value import STORAGE, Index, Value, View, ctype, long_axes, of_view, scalar


def _always(wait: Wait) -> bool:
    """True if a wait has something to wait for, so that the threads meet after it."""
    return any(n.is_single for n in wait.cells[-1:])


@dataclass(frozen=True)
class KnownExpr(ExprWriter):
    """Loads that stand in constants already go by their names."""

    known: dict[Load, str] = field(default_factory=dict)

    def _load(self, e: Load) -> str:
        return self.known[e] if e in self.known else super()._load(e)


@dataclass(frozen=True)
class KnownRegions(RegionWriter):
    """Tables that are made already go by their names. Those of the same rows, `alike`, are made
    together: run-time data is read once."""

    made: set[str] = field(default_factory=set)
    alike: dict[Rows, dict[str, str]] = field(default_factory=dict)  # strides by names of tables

    def _table(self, name: str, axis: Rows, stride: str) -> str:
        if name not in self.made:
            others = self.alike.get(axis, {})
            tables = {name: stride} | {n: s for n, s in others.items() if n not in self.made}
            self._tables(tables, axis)
            self.made.update(tables)
        return name

    def expect(self, name: str, region: Region) -> None:
        """That a view of the region is asked for."""
        shape = self.program.tensor(region.tensor).shape
        for k, axis in enumerate(region.axes):
            if isinstance(axis, Rows):
                stride = self.expr.stride(shape, k)
                self.alike.setdefault(axis, {})[f"{name}_rows{k}"] = stride

    def tables(self, name: str, region: Region, settled: DataAvailability) -> None:
        """Make those whose rows can be read."""
        shape = self.program.tensor(region.tensor).shape
        for k, axis in enumerate(region.axes):
            table = f"{name}_rows{k}"
            if (
                isinstance(axis, Rows)
                and table not in self.made
                and settled.are_loads_known(axis.extent, axis.index)
            ):
                self._table(table, axis, self.expr.stride(shape, k))


class BodyFrame:
    """Memory, names and loops of one body that is being written; the ops are in BodyWriter."""

    def __init__(
        self, out: Dialect, expr: ExprWriter, program: Program, placed: PlacedCall
    ) -> None:
        self.out, self.program, self.placed = out, program, placed
        self.known: dict[Load, str] = {}
        self.expr = KnownExpr(expr.program, expr.debug, expr.flagged, self.known)
        self.call = placed.call
        self.uses = analyse(self.call.body)
        self.left = self.uses.count.copy()
        self.values: dict[int, Value] = {}
        # Tiles of each open loop (the innermost last) that the body itself made.
        self.local: list[set[str]] = [set()]
        # Of each open block: extents that have a name, and operands of products made dense.
        self._extents: list[dict[Node, str]] = [{}]
        self._dense: list[dict[int, View]] = [{}]
        self._count = 0
        self.regions = KnownRegions(out, self.expr, program, self.extent)
        self.args = ArgWriter(
            out, self.regions, program, self.call, placed.vars, self.temp, self.fill, self.add
        )
        self.temps: set[str] = set()  # names of what lies in the arena
        self.targets: dict[int, Target] = {}
        self.reads: dict[int, Value] = {}
        self.direct: dict[int, Target] = {}  # where folds go that are only stored
        # Writes what an iteration of a loop begins with: waits for the chunks that it reads.
        self.enter: Callable[[t.For], None] = lambda loop: None

    def prepare(
        self,
        settled: DataAvailability,
        waits: tuple[Wait, ...],
        sync: SyncWriter,
        checks: Callable[[], None],
    ) -> None:
        """What comes before the work: waits, operands that hand-offs bring, and ahead of them what
        can be read by then."""
        fenced = self.args.edges.before_copies(self.call)
        self.out.extend(fenced)
        settled = self.first_waits(settled, waits, sync)
        if waits or self.args.staged:
            self.early(settled)
        if self.args.edges.words_first(self.call, waits):
            self.args.bring_words()
        put = not self.args.words_come() and self.args.put()
        if waits:
            self.set_off_early(settled, waits[-1], sync)
        sync.waits(waits[-1:])
        if (put or fenced) and not (waits and _always(waits[-1])):
            self.out.barrier()
        checks()
        self.args.bring_copies()
        self.words()
        if not self.expr.debug:
            self.learn(settled.with_wait(waits[-1]) if waits else settled)

    def first_waits(
        self, settled: DataAvailability, waits: tuple[Wait, ...], sync: SyncWriter
    ) -> DataAvailability:
        """All but the last, and ahead of each what can be read by then."""
        for w in waits[:-1]:
            self.early(settled)
            sync.waits((w,))
            settled = settled.with_wait(w)
        return settled

    def set_off_early(self, settled: DataAvailability, last: Wait, sync: SyncWriter) -> None:
        """What somebody else can begin as soon as the last wait is over."""

    def words(self) -> None:
        """Words come last; then the task is ready."""
        self.args.bring_words()
        way = "_for_pages" if self.args.edges.finds(self.call) else ""
        self.out.line(f"et::task_ready{way}(worker);")

    def early(self, settled: DataAvailability) -> None:
        """Run-time data that decides places, and small operands."""
        self.learn(settled)
        for k, region in enumerate(self.call.regions):
            if region.pad is None:
                self.regions.tables(self.args.name(k), region, settled)
        for k in self.small_args():
            region = self.call.regions[k]
            if self.expr.debug and loads_of(*region_exprs(region)):
                continue  # the checks of its places come first
            if self.args.is_small(k) and settled.is_region_known(region):
                self.args.ask(k)

    def learn(self, settled: DataAvailability) -> None:
        """Run-time data that decides places, each read once."""
        for load in place_loads(self.call.regions):
            if load not in self.known and settled.are_loads_known(load):
                self.known[load] = self.extent(load)

    def small_args(self) -> list[int]:
        """Arguments that the body reads."""
        return sorted(read_arguments(self.call.body))

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

    def names(self) -> dict[Node, str]:
        """What has a name so far: extents, and run-time data."""
        names: dict[Node, str] = dict(self._extents[0])
        for load, name in self.known.items():
            names[load] = name
        return names

    def number(self) -> int:
        self._count += 1
        return self._count

    def row_major(self, type: t.TileType) -> tuple[str, ...]:
        shape = type.shape
        return tuple(self.extent(product(shape[k + 1 :])) for k in range(len(shape)))

    @contextmanager
    def scope(self, head: str) -> Iterator[None]:
        self._extents.append({})
        self._dense.append({})
        with self.out.block(head):
            yield
        self._extents.pop()
        self._dense.pop()

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
        if to.data in (to.buffer, f"{to.buffer}.data", f"{to.buffer}_words") and not to.tables:
            self.out.next_loop(dict(map(self._memory, value.leaves.items())),
                               self._memory((to.buffer, True))[0])
        with self.loops(value.type.shape, independent=not to.tables, to=to) as index:
            if to.storage is value.storage:
                text = value.stored_at(index)
            else:
                text = self.rounded(value.at(index), value.type.dtype, to)
            far = any(self._memory(x)[0].startswith("args.") for x in value.leaves.items())
            self.out.assign(to.buffer, STORAGE[to.storage], to.place(index), text, far)

    def add(self, to: View, value: Value, shared: bool = True) -> None:
        """Add element by element; to a `shared` place other tasks may add at the same time."""
        add_one = "et::accumulate_atomic" if shared else "et::accumulate"
        with self.loops(value.type.shape, independent=False, to=to) as index:
            self.out.line(f"{add_one}({to.place(index)}, {value.at(index)});")

    def rounded(self, text: str, dtype: DType, to: View) -> str:
        """An element as a place stores it."""
        return text if to.storage is dtype else f"et::cast<{STORAGE[to.storage]}>({text})"

    def _memory(self, leaf: tuple[str, bool]) -> tuple[str, bool]:
        """A buffer and how it is read. Regions of a tensor are one buffer, in which an index of one
        of them may be another's."""
        names = {self.args.name(k): r.tensor for k, r in enumerate(self.call.regions)}
        name, same = leaf
        return (f"args.{names[name]}", False) if name in names else (name, same)

    def stored(self, id: int, value: Value) -> Value:
        """Evaluate now: a constant for one element, else a tile of its own."""
        type = value.type
        if not long_axes(type):
            at = value.at(("0",) * len(type.shape))
            self.out.line(f"const {ctype(type.dtype)} v{id} = {at};")
            return scalar(f"v{id}", type)
        if value.storage is None:
            self.local[-1].add(f"v{id}")
        return of_view(self.held(f"v{id}", value), type)

    def matrix(self, id: int) -> View:
        """Operand as memory with two strides; one that several products take is copied once."""
        value = self.values[id]
        if value.view is not None and not value.view.tables:
            return value.view
        for known in self._dense:
            if id in known:
                return known[id]
        made = self._dense[-1][id] = self.held(f"v{id}_dense", value)
        return made

