"""The arguments of a body: views of regions, and copies where the meaning asks for them.

Reads happen at the start of a task and writes at its end. Reading through a view is the same thing
unless the task also writes that place; then the region is copied first. A write is staged where
the body itself loads indices from the tensor it writes, and an accumulation where rounding to
storage must happen once; where other tasks may add at the same time, the stage holds what this one
adds. Hand-offs may bring a read into the arena before the task is ready, and
publish a write as words that carry flags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ...ir import tile as t
from ...ir.body_uses import Uses
from ...ir.expr import Const, floordiv, mul, product
from ...ir.layout import divisor
from ...ir.program import Call, Program
from ...ir.tensor import Region, Rows, Slice, apart, axis_exprs, tile_shape
from ..emitter import cpp_name
from .dialect import Dialect
from .region import RegionWriter
from .sync import Edges
from .value import STORAGE, Value, View, of_view, scalar

Temp = Callable[[str, t.TileType, str | None], View]
Fill = Callable[[View, Value], None]


@dataclass(frozen=True)
class Target:
    """Where stores of an argument go, and the real place if that is a stage, to which what is in it
    is assigned or, with `adds`, added; or `words` publish what is in it."""

    view: View
    type: t.TileType
    home: View | None = None
    words: bool = False
    adds: bool = False


@dataclass(frozen=True)
class ArgWriter:
    """`temp` allocates a dense tile, `fill` assigns to one, `add` adds to one. `staged` are the
    arguments that `edges` bring into the arena, as far as the body reads them, `streamed` those
    that come by pages. `brought` holds what is brought once that is written, `asked` how small ones
    among them end."""

    out: Dialect
    regions: RegionWriter
    program: Program
    call: Call
    coords: tuple[str, ...]
    temp: Temp
    fill: Fill
    add: Fill
    edges: Edges = field(default_factory=Edges)
    staged: tuple[int, ...] = ()
    streamed: frozenset[int] = frozenset()
    brought: dict[int, Value] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def name(self, k: int) -> str:
        name = self.call.body.args[k].name
        return f"arg{k}" if name in self.coords or not name.isidentifier() else cpp_name(name)

    def type(self, k: int) -> t.TileType:
        region = self.call.regions[k]
        shape = tile_shape(region, self.program.tensor(region.tensor))
        return t.TileType(self.call.body.args[k].type.dtype, shape)

    def overwritten(self, k: int) -> bool:
        """True if the task may write the place of argument k as another one."""
        args, regions = self.call.body.args, self.call.regions
        return any(
            j != k and arg.mode is not t.ArgMode.read and r.tensor == regions[k].tensor
            and not apart(r, regions[k])
            for j, (arg, r) in enumerate(zip(args, regions, strict=True))
        )

    def has_flags(self, k: int) -> bool:
        """True if the elements of argument k are words that carry flags."""
        return self.edges.has_flags(self.call.regions[k].tensor)

    def read(self, k: int, storage: bool = False) -> Value:
        """Argument k at the start of the task; `storage` keeps the stored dtype in copies."""
        region, name, type = self.call.regions[k], self.name(k), self.type(k)
        if k in self.brought:
            return self.brought[k]
        self.out.comment(f"{name} = {region}")
        if region.pad is not None:
            dense = self.dense(k, storage)
            self.regions.padded(name, region, dense)
            return of_view(dense, type)
        value = of_view(self.regions.view(name, region, const=True), type)
        if not self.overwritten(k):
            return value
        copy = self.dense(k, storage)
        self.fill(copy, value)
        return of_view(copy, type)

    # ---- what comes before the body --------------------------------------------------------

    def is_small(self, k: int) -> bool:
        """True if a read argument can be asked for before the waits, a few elements a thread."""
        region, shape = self.call.regions[k], self.type(k).shape
        if k in (*self.staged, *self.streamed, *self.brought) or self.overwritten(k):
            return False
        if region.pad is not None or any(isinstance(x, Rows) for x in region.axes):
            return False
        size = product(shape)
        return bool(shape) and isinstance(size, Const) and 0 < size.value <= self.edges.ahead

    def ask(self, k: int) -> None:
        """A small argument sets off."""
        region, name = self.call.regions[k], self.name(k)
        kind = STORAGE[self.call.body.args[k].storage]
        self.out.comment(f"{name} = {region}, asked for ahead")
        self.regions.view(name, region, True)
        tile, size = self.dense(k, storage=True), self.regions.extent(product(self.type(k).shape))
        self.out.line(f"const et::RegisterPrefetch<{kind}, {size}> {name}_here({name});")
        self.brought[k] = of_view(tile, self.type(k))
        self.asked.append(f"{name}_here.put({tile.data});")

    def put(self) -> bool:
        """What was asked for goes to its tiles, which the threads see when they have met."""
        self.out.extend(self.asked)
        done = bool(self.asked)
        self.asked.clear()
        return done

    def words_come(self) -> list[int]:
        """Arguments whose words are still to be read."""
        return [k for k in self.staged
                if k not in self.brought and not self.edges.in_bulk(self.call, k)]

    def arrival(self) -> str:
        """Writes what words go to, and gives the condition that all of them have come."""
        words = self._by_words(self.words_come())
        return f"et::read_tagged(worker, {', '.join(words)})" if words else ""

    def bring_words(self) -> None:
        """Words are asked for together, and there when all have come."""
        words = self._by_words(self.words_come())
        if words and self.asked:
            words.insert(0, f"[&] {{ {' '.join(self.asked)} }}")
        if words:
            name = "read_tagged_with" if self.asked else "read_tagged"
            self.out.line(f"if (!et::{name}(worker, {', '.join(words)})) return false;")
            self.asked.clear()

    def bring_copies(self) -> None:
        """What hand-offs bring in bulk."""
        for k in self.staged:
            if self.edges.in_bulk(self.call, k):
                self.brought[k] = self._by_copy(k)

    def _in_place(self, region: Region) -> int:
        """Words of a place: as many neighbours as 16 bytes hold if they fill a region, else one."""
        tensor = self.program.tensor(region.tensor)
        strides = [product(tensor.shape[k + 1 :]) for k in range(len(region.axes))]
        sliced = [k for k, axis in enumerate(region.axes) if isinstance(axis, Slice)]
        shape = tile_shape(region, tensor)
        if not sliced or strides[sliced[-1]] != Const(1):
            return 1
        starts = [mul(axis_exprs(x)[0], n) for x, n in zip(region.axes, strides, strict=True)]
        whole = [shape[-1], *starts, *(strides[k] for k in sliced[:-1])]
        n = 16 // tensor.dtype.tagged_bytes
        return n if all(divisor(e) % n == 0 for e in whole) else 1

    def _by_words(self, args: list[int]) -> list[str]:
        """Tiles for arguments, and the words that these are made of."""
        in_place = [self._in_place(self.call.regions[k]) for k in args]
        places = [floordiv(product(self.type(k).shape), n)
                  for k, n in zip(args, in_place, strict=True)]
        found = []
        for k, n, slots in zip(args, in_place, self.edges.slots(places), strict=True):
            region, name, type = self.call.regions[k], self.name(k), self.type(k)
            element = STORAGE[self.call.body.args[k].storage]
            self.out.comment(f"{name} = {region}, by words that carry their flags")
            self.regions.view(name, region, True, f"et::Tagged<{element}>")
            tile = self.dense(k, storage=True)
            self.brought[k] = of_view(tile, type)
            kind = f"{element}, {len(type.shape)}, {16 if n > 1 else 4}, {slots}"
            place = f"TENSOR_{region.tensor}, &args.{cpp_name(region.tensor)}"
            found.append(f"et::TaggedLoad<{kind}>{{{name}, {tile.data}, {place}}}")
        return found

    def _by_copy(self, k: int) -> Value:
        region, name, type = self.call.regions[k], self.name(k), self.type(k)
        kind = STORAGE[self.call.body.args[k].storage]
        self.out.comment(f"{name} = {region}, by one copy")
        view = self.regions.view(name, region, True)
        tile = self.dense(k, storage=True)
        count = self.regions.extent(product(type.shape))
        own = "true" if self.overwritten(k) else "false"
        self.out.line(
            f"const {kind}* const {name}_here = worker.bulk_loader.bring<{kind}>("
            f"{tile.data}, {view.data}, {count}, {own});"
        )
        return of_view(replace(tile, data=f"{name}_here", buffer=f"{name}_here"), type)

    def dense(self, k: int, storage: bool) -> View:
        """A temporary for argument k, of tile elements or of stored ones."""
        dtype, name = self.call.body.args[k].storage, f"{self.name(k)}_tile"
        if not storage:
            return self.temp(name, self.type(k), None)
        return replace(self.temp(name, self.type(k), STORAGE[dtype]), storage=dtype)

    def place(self, k: int) -> View:
        """Argument k, where it lies."""
        self.out.comment(f"{self.name(k)} = {self.call.regions[k]}")
        return self.regions.view(self.name(k), self.call.regions[k], const=False)

    def write(self, k: int, uses: Uses, plain: bool = False) -> Target:
        """Argument k as a target of stores or accumulation; `plain` asks for a place in memory that
        holds elements."""
        name, type = self.name(k), self.type(k)
        if self.has_flags(k):
            return self._as_words(k, plain)
        home = self.place(k)
        if not self._staged(k, uses):
            return Target(home, type)
        stage = self.temp(f"{name}_stage", type, None)
        adds = self.call.unordered and self.call.body.args[k].mode == t.ArgMode.accumulate
        self.fill(stage, scalar("0", type) if adds else of_view(home, type))
        return Target(stage, type, home, adds=adds)

    def _as_words(self, k: int, plain: bool) -> Target:
        """Words are written once: straight away by a body that has one store of the whole region,
        else from a stage at the end, where their place is found: a body has no register for it."""
        name, type = self.name(k), self.type(k)
        dtype = self.call.body.args[k].storage
        if plain or not stored_once(self.call.body, k):
            stage = self.temp(f"{name}_stage", type, STORAGE[dtype])
            return Target(replace(stage, storage=dtype), type, words=True)
        view = self._words_of(k)
        self.out.line(
            f"const et::TaggedStore<{STORAGE[dtype]}> {name}_words{{{view.data}, worker.epoch}};"
        )
        return Target(replace(view, data=f"{name}_words"), type)

    def _words_of(self, k: int) -> View:
        """Where the words of argument k lie."""
        region, element = self.call.regions[k], STORAGE[self.call.body.args[k].storage]
        self.out.comment(f"{self.name(k)} = {region}, as words that carry their flags")
        return self.regions.view(self.name(k), region, False, f"et::Tagged<{element}>")

    def _staged(self, k: int, uses: Uses) -> bool:
        arg = self.call.body.args[k]
        if self.call.regions[k].tensor in uses.loads:
            return True
        if arg.mode != t.ArgMode.accumulate or self.call.unordered:
            return False
        return arg.storage is not arg.type.dtype and _adds(self.call.body.stmts, k, 1) > 1

    def finish(self, targets: dict[int, Target]) -> None:
        published = {k: x for k, x in targets.items() if x.words}
        if published:
            self.out.barrier()
        for k, target in published.items():
            self._words_of(k)
            self.out.line(f"et::write_tagged(worker, {self.name(k)}, {target.view.data});")
        for target in targets.values():
            if target.home is not None:
                put = self.add if target.adds else self.fill
                put(target.home, of_view(target.view, target.type))


def stored_once(body: t.Body, arg: int) -> bool:
    """True if one statement, outside all loops, assigns all elements of a write."""
    stores = [s for s in t.all_stmts(body.stmts) if isinstance(s, t.Store) and s.arg == arg]
    whole = tuple(Slice(Const(0), e) for e in body.args[arg].type.shape)
    return len(stores) == 1 and stores[0] in body.stmts and stores[0].axes == whole


def _adds(stmts: tuple[t.Stmt, ...], arg: int, weight: int) -> int:
    """Accumulate statements for an argument; one in a loop counts twice."""
    total = 0
    for s in stmts:
        if isinstance(s, t.Accumulate) and s.arg == arg:
            total += weight
        elif isinstance(s, t.For):
            total += _adds(s.body, arg, 2)
    return total
