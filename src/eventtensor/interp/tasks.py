"""Tasks: their names, their rank in program order, and their execution against memory.

A task reads when it starts and writes when it ends. A Watcher sees every element that it touches,
and may raise or log it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from ..errors import NotWritten
from ..ir.expr_functions import ExprFunctions, no_load
from ..ir.program import Call, GridAxis, PlacedCall
from ..ir.tensor import Region
from ..ir.tile import SubAxis
from ..ir.walk import LoadFn
from .evaluate import Effects, Place, evaluate
from .footprints import Footprint, Locate, add_into, fetch, grid_points, locator, point, put
from .numbers import Array
from .obligations import Obligations
from .shadow_memory import ShadowMemory
from .task_steps import slice_footprint


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """A call and its coordinates: loop variables, then grid coordinates. A header, which reads the
    run-time extents of a grid, has loop variables alone."""

    call: str
    coords: tuple[int, ...]
    header: bool = False

    def __str__(self) -> str:
        inner = ", ".join(str(c) for c in self.coords)
        return f"{'the grid size of ' if self.header else ''}{self.call}({inner})"


class Mode(IntEnum):
    """The mode of an access. Reads do not conflict with reads, nor unordered additions with each
    other."""

    read = 0
    write = 1
    add_unordered = 2


class Abandoned(Exception):
    """An index comes from an unwritten element, which the watcher has seen."""


class Watcher(Protocol):
    """Sees the accesses to tensors that tasks write."""

    def touch(self, mode: Mode, f: Footprint) -> None:
        """The running task touches these elements."""

    def unwritten(self, tensor: str, index: tuple[int, ...]) -> None:
        """The running task reads an unwritten element."""


def iterations(
    placed: PlacedCall, dims: Mapping[str, int], functions: ExprFunctions
) -> Iterator[dict[str, int]]:
    """The values of the loops around a call, in order."""
    loops = tuple(GridAxis(lp.var, lp.extent) for lp in placed.loops)
    return grid_points(loops, dims, no_load, functions)


def program_rank(placed: PlacedCall, env: Mapping[str, int], header: bool) -> tuple[int, ...]:
    """A key that sorts tasks by program order."""
    rank: list[int] = []
    for level, position in enumerate(placed.position):
        rank.append(position)
        if level < len(placed.loops):
            rank.append(env[placed.loops[level].var])
    return (*rank, *(() if header else (env[v] for v in placed.call.coords)))


def task_of(placed: PlacedCall, env: Mapping[str, int], header: bool = False) -> Task:
    names = [lp.var for lp in placed.loops] if header else placed.vars
    return Task(placed.call.name, tuple(env[v] for v in names), header)


class _Use(NamedTuple):
    """A use of a region. It is `watched` if a task writes the tensor."""

    mode: Mode
    locate: Locate
    watched: bool


# ---- execution -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Execution:
    """Executes tasks against memory. Debug has obligations, and checks that tasks assign their
    write regions."""

    memory: ShadowMemory
    obligations: Obligations | None = None
    functions: ExprFunctions = field(default_factory=ExprFunctions)
    _locators: dict[int, tuple[Region, Locate]] = field(default_factory=dict)
    _uses: dict[int, tuple[Call, list[_Use]]] = field(default_factory=dict)

    def locate(
        self, region: Region, env: Mapping[str, int], load: LoadFn, place: Place
    ) -> Footprint:
        """The elements of a region at one task."""
        return self._locator(region)(env, load, place)

    def _locator(self, region: Region) -> Locate:
        found = self._locators.get(id(region))
        if found is None:
            made = locator(region, self.memory.shape(region.tensor))
            found = self._locators[id(region)] = region, made
        return found[1]

    def _uses_of(self, call: Call) -> list[_Use]:
        """The uses of the regions of a call, in argument order."""
        found = self._uses.get(id(call))
        if found is None:
            adding = Mode.add_unordered if call.unordered else Mode.write
            modes = [Mode.read] * len(call.reads) + [adding] * len(call.accumulates)
            modes += [Mode.write] * len(call.writes)
            uses = [
                _Use(mode, self._locator(r), r.tensor not in self.memory.constant)
                for mode, r in zip(modes, call.regions, strict=True)
            ]
            found = self._uses[id(call)] = call, uses
        return found[1]

    def loader(self, watcher: Watcher, place: Place) -> LoadFn:
        """A load function for index data. It checks the index, calls the watcher, and in debug
        checks the data."""
        memory = self.memory

        def load(tensor: str, index: tuple[int, ...]) -> int:
            memory.check_index(tensor, index, place)
            if tensor not in memory.constant:
                watcher.touch(Mode.read, point(tensor, index))
                if tensor in memory.written and not memory.written[tensor][index]:
                    watcher.unwritten(tensor, index)
                    raise Abandoned
            if self.obligations is not None:
                self.obligations.check_load(tensor, place)
            return int(memory.arrays[tensor].item(index))

        return load

    def run(
        self, call: Call, env: Mapping[str, int], watcher: Watcher, place: Place,
        early: Mapping[int, Array],
    ) -> None:
        """Run one task. `env` binds dims and all coordinates; `early` are arguments that earlier
        steps have read. Abandoned is raised before any effect."""
        load = self.loader(watcher, place)
        uses = self._uses_of(call)
        prints = [use.locate(env, load, place) for use in uses]
        first, last = len(call.reads), len(call.reads) + len(call.accumulates)
        for k, (use, f) in enumerate(zip(uses, prints, strict=True)):
            if use.watched and k not in early and not f.is_empty:
                watcher.touch(use.mode, f)
        tiles = {
            k: early[k] if k in early else self._read(prints[k], watcher) for k in range(first)
        }
        shapes = {k: prints[k].shape for k in range(last, len(prints))}
        effects = evaluate(call.body, env, tiles, shapes, load, place, self.functions)
        self._commit(effects, prints, first, place)
        if self.obligations is not None:
            self.obligations.mark_changed({f.tensor for f in prints[first:]})

    def empty_tile(self, call: Call, k: int, env: Mapping[str, int], place: Place) -> Array:
        """An empty tile for read argument k, which steps fill."""
        f = self._sliced_operand(call.reads[k], env, place)
        return np.zeros(f.shape, self.memory.dtype(f.tensor).tile_dtype.numpy)

    def read_slice(
        self,
        call: Call,
        k: int,
        axes: tuple[SubAxis, ...],
        env: Mapping[str, int],
        watcher: Watcher,
        place: Place,
        tile: Array,
    ) -> None:
        """Read a slice of argument k into the tile."""
        whole = self._sliced_operand(call.reads[k], env, place)
        f, key = slice_footprint(whole, axes, env)
        if not f.is_empty:
            if f.tensor not in self.memory.constant:
                watcher.touch(Mode.read, f)
            tile[key] = self._read(f, watcher)

    def _sliced_operand(self, region: Region, env: Mapping[str, int], place: Place) -> Footprint:
        """The whole of a sliced operand, which no run-time data decides."""
        return self.locate(region, env, no_load, place)

    def _read(self, f: Footprint, watcher: Watcher) -> Array:
        unwritten = self.memory.first_unwritten(f)
        if unwritten is not None:
            watcher.unwritten(f.tensor, unwritten)
        return fetch(f, self.memory.arrays[f.tensor], self.memory.dtype(f.tensor))

    def _commit(
        self, effects: Effects, prints: list[Footprint], first: int, place: Place
    ) -> None:
        """Write the effects of a task. Regions before `first` are reads."""
        memory = self.memory
        added: dict[int, list[Array]] = {}
        for arg, value in effects.added:
            # The tile may be a view of the memory that is written here.
            added.setdefault(arg, []).append(value.copy())
        for arg, values in added.items():
            f = prints[arg]
            add_into(f, memory.arrays[f.tensor], values, memory.dtype(f.tensor))
        for arg, tile in effects.tiles.items():
            f, assigned = prints[arg], effects.assigned[arg]
            if self.obligations is not None and not assigned.all():
                self._check_assigned(f, assigned | self._elements_read(f, prints[:first]), place)
            put(f, memory.arrays[f.tensor], tile, assigned, memory.dtype(f.tensor))
            memory.mark(f, assigned)

    def _elements_read(self, f: Footprint, reads: list[Footprint]) -> Array:
        """The elements of the tile of `f` that the task reads too."""
        read = np.zeros(self.memory.shape(f.tensor), np.bool_)
        for r in reads:
            if r.tensor == f.tensor:
                read[r.key()] = True
        full = np.ones(f.full_shape, np.bool_)
        full[f.inner()] = read[f.key()]
        return full.reshape(f.shape)

    @staticmethod
    def _check_assigned(f: Footprint, assigned: Array, place: Place) -> None:
        full = assigned.reshape(f.full_shape)[f.inner()]
        if full.all():
            return
        position = np.unravel_index(int(np.argmin(full)), full.shape)
        index = f.index_at(tuple(int(p) for p in position))
        raise NotWritten(
            f"{place.label} declares that it writes {f.tensor}{list(index)} but never assigns it",
            place=place.place,
        )
