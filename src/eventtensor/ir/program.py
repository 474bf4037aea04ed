"""The program: tensors, event tensors, facts, and calls in loops.

All values are frozen. `waits` and `notifies` of a call are those that the user declared. Derived
ones are in the plan (ir/plan.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from .cpp_body import CppBody
from .cuda_body import CudaBody
from .expr import Dim, Node
from .tensor import Region, Tensor, region_exprs
from .text import call_lines, loop_lines, program_text
from .tile import Body
from .walk import dims_of, loads_of


@dataclass(frozen=True, slots=True)
class EventTensor:
    """An array of counters, which count up from 0. `count` notifies complete a cell. It is an
    expression over the cell coordinates c0, c1, .., or None until it is derived."""

    name: str
    shape: tuple[Node, ...]
    count: Node | None = None
    derived: bool = False
    place: str = field(default="<unknown>", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GridAxis:
    """Coordinate `var` runs over 0 .. extent-1. The extent may use loop variables, earlier
    coordinates and run-time data."""

    var: str
    extent: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A grid of tasks of one kind. `waits` and `notifies` are derived if None, and empty if ().
    The schedule sets `pushed`: the worker that completes a cell then evaluates the wait maps of
    this call. A custom body replaces the code that `body` would give."""

    name: str
    kind: str
    grid: tuple[GridAxis, ...]
    reads: tuple[Region, ...]
    accumulates: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Body
    unordered: bool = False
    waits: tuple[Region, ...] | None = None
    notifies: tuple[Region, ...] | None = None
    cpp_body: CppBody | None = None
    cuda_body: CudaBody | None = None
    pushed: bool = False
    place: str = field(default="<unknown>", compare=False)

    @property
    def coords(self) -> tuple[str, ...]:
        return tuple(a.var for a in self.grid)

    @property
    def regions(self) -> tuple[Region, ...]:
        """In argument order."""
        return self.reads + self.accumulates + self.writes

    @property
    def has_custom_body(self) -> bool:
        return self.cpp_body is not None or self.cuda_body is not None

    @property
    def prefetches_next_tile(self) -> bool:
        """True if the CUDA body starts to load the next tile of its worker."""
        return self.cuda_body is not None and self.cuda_body.prefetches_next_tile

    @property
    def persistent_bytes_per_warp(self) -> int:
        """Shared memory of its CUDA body that lasts from task to task."""
        return 0 if self.cuda_body is None else self.cuda_body.persistent_bytes_per_warp

    def lines(self) -> Iterator[str]:
        """The lines of its text, as those of a loop."""
        return call_lines(self)


@dataclass(frozen=True, slots=True)
class Loop:
    """Iterations in order, `var` = 0 .. extent-1."""

    var: str
    extent: Node
    body: tuple[Item, ...]

    def lines(self) -> Iterator[str]:
        return loop_lines(self)


Item = Call | Loop


@dataclass(frozen=True, slots=True)
class Fact:
    """`cond` holds for all values of the variables in their ranges (each 0 .. extent-1)."""

    over: tuple[GridAxis, ...]
    cond: Node
    place: str = field(default="<unknown>", compare=False, repr=False)


@dataclass(frozen=True)
class Program:
    name: str
    tensors: tuple[Tensor, ...]
    events: tuple[EventTensor, ...]
    facts: tuple[Fact, ...]
    body: tuple[Item, ...]

    def __hash__(self) -> int:
        """A cheap hash, because analyses are cached by program. Equality compares the rest."""
        return hash((self.name, len(self.tensors), len(self.body)))

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def event(self, name: str) -> EventTensor:
        return self._events[name]

    def call(self, name: str) -> Call:
        return self._placed[name].call

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {t.name: t for t in self.tensors}

    @cached_property
    def _events(self) -> dict[str, EventTensor]:
        return {e.name: e for e in self.events}

    @cached_property
    def _placed(self) -> dict[str, PlacedCall]:
        return {p.call.name: p for p in self.calls}

    def placed(self, name: str) -> PlacedCall:
        return self._placed[name]

    @cached_property
    def calls(self) -> tuple[PlacedCall, ...]:
        """All calls in program order, each with the loops around it."""
        return tuple(_place(self.body, (), ()))

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """All dims, by name."""
        exprs: list[Node] = [s for t in self.tensors for s in t.shape]
        exprs += [b for t in self.tensors for b in (t.bound or ())]
        for e in self.events:
            exprs += [*e.shape, *(() if e.count is None else (e.count,))]
        for p in self.calls:
            exprs += [loop.extent for loop in p.loops] + [a.extent for a in p.call.grid]
            for r in (*p.call.regions, *(p.call.waits or ()), *(p.call.notifies or ())):
                exprs += region_exprs(r)
        for f in self.facts:
            exprs += [f.cond, *(a.extent for a in f.over)]
        return tuple(sorted(dims_of(*exprs), key=lambda d: d.name))

    def __str__(self) -> str:
        return program_text(self)


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call, the loops around it, outermost first, and its position in the program. A position has
    one number for each level, and orders calls in equal loop iterations."""

    call: Call
    loops: tuple[Loop, ...]
    position: tuple[int, ...]

    @property
    def vars(self) -> tuple[str, ...]:
        """All coordinates of a task: loop variables, then grid coordinates."""
        return (*(loop.var for loop in self.loops), *self.call.coords)

    @property
    def axes(self) -> tuple[GridAxis, ...]:
        """Ranges of `vars`."""
        return (*(GridAxis(lp.var, lp.extent) for lp in self.loops), *self.call.grid)


def _place(
    items: tuple[Item, ...], loops: tuple[Loop, ...], position: tuple[int, ...]
) -> Iterator[PlacedCall]:
    for k, item in enumerate(items):
        if isinstance(item, Loop):
            yield from _place(item.body, (*loops, item), (*position, k))
        else:
            yield PlacedCall(item, loops, (*position, k))


def has_data_extent(call: Call) -> bool:
    """True if the grid's size is known only at run time."""
    return bool(loads_of(*(a.extent for a in call.grid)))
