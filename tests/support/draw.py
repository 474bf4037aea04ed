"""Random programs: a pool of tensors, and calls that read, write and update them.

A `Maker` adds calls to one program; blocks.py adds shapes of work that chance would not hit. What
it makes is right by construction, so that every finding of the analysis is a false alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

import eventtensor as et
from eventtensor.ir.program import Program
from eventtensor.ir.text import call_lines
from eventtensor.ir.tile import Body
from tests.support import bodies

Choose = Callable[[int, int], int]  # a number from lo to hi, both included
Size = Any
Data = Callable[[dict[str, int], np.random.Generator], dict[str, Any]]


@dataclass(frozen=True)
class Held:
    """A tensor whose elements are all defined, and the sizes of its axes."""

    ref: Any
    sizes: tuple[Size, ...]
    writable: bool = True


@dataclass(frozen=True)
class Coord:
    """A grid coordinate that walks over an axis of `size` in tiles."""

    size: Size
    tile: int

    @property
    def extent(self) -> Any:
        return tiles(self.size, self.tile)

    def slice(self, at: Any, lo: int = 0, hi: int = 0) -> slice:
        return slice(at * self.tile - lo, at * self.tile + self.tile + hi)


@dataclass(frozen=True)
class Drawn:
    """A program, how to make its index data, and dims to run it at."""

    program: Program
    data: tuple[Data, ...]
    dims: tuple[dict[str, int], ...]

    @property
    def outline(self) -> str:
        """The program's text without task bodies."""
        calls = [replace(p.call, body=Body((), (), ())) for p in self.program.calls]
        kept = [line for c in calls for line in call_lines(c) if line.strip() != "body"]
        head = str(self.program).split("\ncall ", 1)[0].split("\nloop ", 1)[0]
        loops = [f"{p.call.name} in {lp.var} < {lp.extent}" for p in self.program.calls
                 for lp in p.loops]
        return "\n".join([head, *kept, *loops])

    def given(self, dims: dict[str, int], seed: int = 0) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {k: v for make in self.data for k, v in make(dims, rng).items()}


def tiles(size: Size, tile: int) -> Any:
    return (size + tile - 1) // tile


def of_coords(rank: int, fn: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """A lambda of `rank` coordinates, as p.call wants it."""
    made: dict[int, Callable[..., Any]] = {
        0: lambda: fn(()),
        1: lambda i: fn((i,)),
        2: lambda i, j: fn((i, j)),
        3: lambda i, j, k: fn((i, j, k)),
    }
    return made[rank]


def same_size(a: Size, b: Size) -> bool:
    return type(a) is type(b) and bool(a == b)


Region = Callable[[Sequence[Any]], Any]


def _columns(ref: Any, rows: Coord, first: int, last: int, at: Sequence[Any]) -> Any:
    return ref[rows.slice(at[0]), first:last]


@dataclass
class Maker:
    number: Choose
    p: Any = field(default_factory=lambda: et.Program("drawn"))
    n: Any = field(default_factory=lambda: et.dim("n", max=16))
    m: Any = field(default_factory=lambda: et.dim("m", max=12))
    depth: Any = field(default_factory=lambda: et.dim("L", max=8))
    pool: list[Held] = field(default_factory=list)
    data: list[Data] = field(default_factory=list)
    made: int = 0
    loop: Any = None

    # ---- choices ---------------------------------------------------------------------------

    def pick(self, options: Sequence[Any]) -> Any:
        found = list(options)
        return found[self.number(0, len(found) - 1)]

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) < percent

    # ---- tensors ---------------------------------------------------------------------------

    def name(self, base: str) -> str:
        self.made += 1
        return f"{base}{self.made}"

    def sizes(self) -> tuple[Size, ...]:
        first = self.pick((self.n, self.n, self.m, 6))
        return (first, self.pick((self.m, 3, 4, 5))) if self.chance(60) else (first,)

    def input(self, sizes: tuple[Size, ...] | None = None) -> Held:
        sizes = sizes or self.sizes()
        make = self.p.input if self.chance(50) else self.p.state
        ref = make(self.name("x"), sizes, et.f32)
        held = Held(ref, sizes, make == self.p.state)
        self.pool.append(held)
        return held

    def fresh(self, sizes: tuple[Size, ...] | None = None, by_data: bool = False) -> Held:
        """A tensor that nobody has written yet (not in the pool); `by_data`: what is written of it
        is up to data."""
        sizes = sizes or self.sizes()
        if self.pick((True, False, False)):
            return Held(self.p.scratch(self.name("t"), sizes, et.f32), sizes)
        return Held(self.p.output(self.name("t"), sizes, et.f32, partial=by_data), sizes)

    def any(self, but: Held | None = None) -> Held:
        found: Held = self.pick([h for h in self.pool if h is not but])
        return found

    # ---- regions ---------------------------------------------------------------------------

    def cover(self, sizes: tuple[Size, ...]) -> tuple[list[Coord], Region]:
        """A grid whose tiles are disjoint and cover a tensor, and the tile's slices."""
        coords: list[Coord] = []
        parts: list[int | None] = []
        for size in sizes:
            how = self.pick(("tile", "tile", "tile", "point", "full"))
            if how == "full" or len(coords) == 3:
                parts.append(None)
                continue
            most = min(7, size) if isinstance(size, int) else 7
            tile = 1 if how == "point" else self.number(2, max(2, most))
            parts.append(len(coords))
            coords.append(Coord(size, tile))

        def region(at: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(
                slice(None) if k is None else
                at[k] if coords[k].tile == 1 else coords[k].slice(at[k]) for k in parts
            )

        return coords, region

    def reach(self, held: Held, coords: list[Coord]) -> Region:
        """A region of a tensor that a task at these coordinates reads."""
        makers = [self._axis(size, coords) for size in held.sizes]
        halo = [(lo, hi) for _, lo, hi in makers]
        ref = held.ref
        if any(h != (0, 0) for h in halo):
            ref = ref.padded(tuple(h[0] for h in halo), tuple(h[1] for h in halo), 1.0)
        return lambda at: ref[tuple(make(at) for make, _, _ in makers)]

    def _axis(self, size: Size, coords: list[Coord]) -> tuple[Region, int, int]:
        near = [k for k, c in enumerate(coords) if same_size(c.size, size)]
        ways = ["tile"] * 4 + ["halo"] * 2 + ["upto", "from", "full"] if near else ["full", "fixed"]
        how = self.pick(ways)
        if how == "full":
            return lambda at: slice(None), 0, 0
        if how == "fixed":
            first = self.number(0, size - 1) if isinstance(size, int) else 0
            return (lambda at: first) if self.chance(50) else (
                lambda at: slice(first, first + 2)), 0, 0
        k = self.pick(near)
        c = coords[k]
        if how == "upto":
            return lambda at: slice(0, at[k] * c.tile + c.tile), 0, 0
        if how == "from":
            return lambda at: slice(at[k] * c.tile, c.size), 0, 0
        lo, hi = (self.number(0, 3), self.number(1, 4)) if how == "halo" else (0, 0)
        return lambda at: c.slice(at[k], lo, hi), lo, hi

    # ---- calls -----------------------------------------------------------------------------

    def call(
        self, kind: Any, coords: Sequence[Any], reads: Sequence[Region] = (),
        writes: Sequence[Region] = (), adds: Sequence[Region] = (), **more: Any,
    ) -> None:
        grid = tuple(c.extent if isinstance(c, Coord) else c for c in coords)

        def group(regions: Sequence[Region]) -> Any:
            return of_coords(len(grid), lambda at: tuple(r(at) for r in regions)) if regions else ()

        edges = {k: of_coords(len(grid), v) for k, v in more.items() if k in ("waits", "notifies")}
        rest = {k: v for k, v in more.items() if k not in edges}
        self.p.call(kind, grid=grid, reads=group(reads), writes=group(writes),
                    accumulates=group(adds), name=self.name("call"), **edges, **rest)

    def write(self, held: Held) -> None:
        """Define a tensor from others, or write it anew."""
        coords, tile = self.cover(held.sizes)
        sources = [self.any(held) for _ in range(self.number(1, 3))]
        self.call(bodies.MIX[len(sources)], coords, [self.reach(s, coords) for s in sources],
                  [lambda at: held.ref[tile(at)]])

    def update(self, held: Held) -> None:
        """In place: each tile reads its own region, and others tensors'."""
        coords, tile = self.cover(held.sizes)
        own: Region = lambda at: held.ref[tile(at)]
        if self.chance(50) or len(self.pool) == 1:
            self.call(bodies.same, coords, [own], [own])
        else:
            self.call(bodies.mix2, coords, [own, self.reach(self.any(held), coords)], [own])

    def add(self, held: Held) -> None:
        """Accumulate over one more coordinate, which walks over some other tensor."""
        coords, tile = self.cover(held.sizes)
        source = self.any(held)
        size = self.pick(source.sizes)
        over = [Coord(size, self.number(2, 5))] if len(coords) < 3 else []
        first = self.chance(30)
        walk = [*over, *coords] if first else [*coords, *over]
        shift = len(over) if first else 0
        self.call(bodies.add1, walk, [self.reach(source, walk)],
                  adds=[lambda at: held.ref[tile(at[shift:])]], unordered=self.chance(40))

    def parts(self) -> None:
        """One tensor, defined by two grids."""
        size, width = self.pick((self.n, self.m)), self.number(2, 5)
        cut = self.number(1, width - 1)
        held = self.fresh((size, width))
        for first, last in ((0, cut), (cut, width)):
            c = Coord(size, self.number(1, 6))
            self.call(bodies.mix1, [c], [self.reach(self.any(), [c])],
                      [partial(_columns, held.ref, c, first, last)])
        self.pool.append(held)

    def step(self) -> None:
        """One random call."""
        writable = [h for h in self.pool if h.writable]
        how = self.pick(("write", "write", "write", "again", "update", "add", "add", "parts"))
        if how == "parts" and self.loop is None:
            self.parts()
        elif how in ("update", "again", "add") and writable:
            target = self.pick(writable)
            if how == "again" and len(self.pool) > 1:
                self.write(target)
            elif how == "add" and len(self.pool) > 1:
                self.add(target)
            else:
                self.update(target)
        else:
            held = self.fresh()
            if how == "add" and self.loop is None:
                self.add(held)
            else:
                self.write(held)
            self.pool.append(held)
