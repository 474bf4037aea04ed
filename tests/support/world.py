"""A program at concrete dims, by plain enumeration: every task, the elements it touches, the cells
it waits for and notifies. No integer sets; nothing of the analysis but the plan under test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol

from eventtensor.ir.plan import Nest, Notify, Wait
from eventtensor.ir.program import EventTensor, GridAxis, PlacedCall, Program, has_data_extent
from eventtensor.ir.tensor import Axis, Point, Region, Rows, Slice
from eventtensor.ir.walk import evaluate, loads_of
from tests.support.touch import Touch, in_turn, touches

Element = tuple[str, tuple[int, ...]]
Cell = tuple[str, tuple[int, ...]]
Env = Mapping[str, int]


class Edges(Protocol):
    """What is judged: a Derived has these."""

    @property
    def events(self) -> tuple[EventTensor, ...]: ...
    @property
    def headers(self) -> dict[str, tuple[Wait, ...]]: ...
    @property
    def waits(self) -> dict[str, tuple[Wait, ...]]: ...
    @property
    def notifies(self) -> dict[str, tuple[Notify, ...]]: ...


class Outside(Exception):
    """An index lies outside its tensor or event tensor."""

    def __init__(self, tensor: str) -> None:
        self.tensor = tensor
        super().__init__(tensor)


@dataclass(frozen=True)
class WaitedCell:
    cell: Cell
    target: int
    stage: int


@dataclass
class Act:
    """A task, or the header of a grid (its reading of run-time extents). Reads carry the number of
    waits that are done when they happen; `begin` are done when the body, and so writes, begin."""

    call: str
    coords: tuple[int, ...]
    time: tuple[int, ...]
    header: bool = False
    reads: dict[Element, int] = field(default_factory=dict)
    writes: set[Element] = field(default_factory=set)
    adds: set[Element] = field(default_factory=set)
    waited: list[WaitedCell] = field(default_factory=list)
    notified: list[Cell] = field(default_factory=list)
    parent: int | None = None
    unordered: bool = False
    outside: str | None = None
    begin: int = 10**6

    @property
    def name(self) -> tuple[str, tuple[int, ...]]:
        return self.call, self.coords


class World:
    """All tasks in program order. `data` holds the arrays that indices, extents and counts read."""

    def __init__(
        self, program: Program, edges: Edges, dims: Mapping[str, int],
        data: Mapping[str, Any] | None = None,
    ) -> None:
        self.program, self.edges, self.dims, self.data = program, edges, dict(dims), data or {}
        self.shapes: dict[str, tuple[int, ...]] = {
            t.name: tuple(evaluate(s, self.dims) for s in t.shape) for t in program.tensors
        }
        self.events = {e.name: e for e in edges.events}
        for e in edges.events:
            self.shapes[e.name] = tuple(evaluate(s, self.dims) for s in e.shape)
        self.acts: list[Act] = []
        for placed in program.calls:
            loops = tuple(GridAxis(lp.var, lp.extent) for lp in placed.loops)
            for env in _points(loops, self.dims):
                self._iteration(placed, env)
        self.acts.sort(key=lambda a: (a.time, not a.header, a.coords))
        self._link_headers()

    def _iteration(self, placed: PlacedCall, env: dict[str, int]) -> None:
        time: list[int] = []
        for level, position in enumerate(placed.position):
            time.append(position)
            if level < len(placed.loops):
                time.append(env[placed.loops[level].var])
        name = placed.call.name
        extents: dict[Element, int] = {}
        points = list(_points(placed.call.grid, env, self._loader(extents, 10**6)))
        if has_data_extent(placed.call) or self.edges.headers.get(name):
            header = Act(name, tuple(env[lp.var] for lp in placed.loops), tuple(time), True)
            header.reads = extents
            self._waits(header, [(w, env) for w in self.edges.headers.get(name, ())])
            self.acts.append(header)
        for point in points:
            self.acts.append(self._act(placed, point, tuple(time)))

    def _act(self, placed: PlacedCall, env: dict[str, int], time: tuple[int, ...]) -> Act:
        call = placed.call
        act = Act(call.name, tuple(env[v] for v in placed.vars), time, unordered=call.unordered)
        waits = self.edges.waits[call.name]
        act.begin = sum(w.loop is None for w in waits)
        load = self._loader(act.reads, act.begin)
        try:
            self._waits(act, in_turn(call, waits, env))
            for k, r in enumerate(call.reads):
                self._reads(act, placed, k, self._elements(r, env, load), env)
            for r in call.accumulates:
                act.adds.update(self._elements(r, env, load))
            for r in call.writes:
                act.writes.update(self._elements(r, env, load))
            for n in self.edges.notifies[call.name]:
                for nest in n.cells:
                    act.notified += self._cells(n.event, nest, env, load)
        except Outside as error:
            act.outside = error.tensor
        return act

    def _reads(
        self, act: Act, placed: PlacedCall, k: int, elements: list[Element], env: Env
    ) -> None:
        """What a task reads of argument k, at the first moment at which it is touched; without
        waits inside the body that is its start."""
        call, waits = placed.call, self.edges.waits[placed.call.name]
        inside = any(w.loop is not None for w in waits)
        parts = [x for x in touches(call, waits, env) if x.arg == k] if inside else [
            Touch(k, len(waits))]
        for x in parts:
            for e in elements if x.part is None else _of_part(call.reads[k], elements, x.part):
                act.reads[e] = min(x.stage, act.reads.get(e, x.stage))

    def _waits(self, act: Act, waits: Sequence[tuple[Wait, Env]]) -> None:
        for stage, (wait, env) in enumerate(waits):
            load = self._loader(act.reads, stage)
            cells = [c for nest in wait.cells for c in self._cells(wait.event, nest, env, load)]
            for cell in dict.fromkeys(cells):
                scope = {**self.dims, **{f"c{k}": v for k, v in enumerate(cell[1])}}
                count = self.events[wait.event].count
                assert count is not None
                act.waited.append(WaitedCell(cell, evaluate(count, scope, load), stage))

    def _cells(self, event: str, nest: Nest, env: Env, load: Any) -> Iterator[Cell]:
        for index in _visited(nest, dict(env), load):
            self._inside(event, index)
            yield event, index

    def _inside(self, name: str, index: tuple[int, ...]) -> None:
        if not all(0 <= i < s for i, s in zip(index, self.shapes[name], strict=True)):
            raise Outside(name)

    def _loader(self, reads: dict[Element, int], stage: int) -> Any:
        def load(tensor: str, index: tuple[int, ...]) -> int:
            self._inside(tensor, index)
            element = (tensor, index)
            reads[element] = min(stage, reads.get(element, stage))
            return int(self.data[tensor][index])

        return load

    def _elements(self, region: Region, env: Env, load: Any) -> list[Element]:
        shape = self.shapes[region.tensor]
        pads = (((0, 0),) * len(shape) if region.pad is None
                else tuple(zip(region.pad.lo, region.pad.hi, strict=True)))
        axes = [
            _indices(a, s, p, env, load, region.tensor)
            for a, s, p in zip(region.axes, shape, pads, strict=True)
        ]
        return [(region.tensor, index) for index in product(*axes)]

    def _link_headers(self) -> None:
        found = {(a.call, a.time): k for k, a in enumerate(self.acts) if a.header}
        for a in self.acts:
            if not a.header:
                a.parent = found.get((a.call, a.time))


def _of_part(
    region: Region, elements: list[Element], part: tuple[tuple[int, int], ...]
) -> Iterator[Element]:
    """The elements in the given ranges of the tile, which starts at the first (no padding)."""
    kept = [k for k, a in enumerate(region.axes) if not isinstance(a, Point)]
    rows = [sorted({e[1][k] for e in elements}) for k in kept]
    picked = [set(r[max(lo, 0) : max(hi, 0)]) for r, (lo, hi) in zip(rows, part, strict=True)]
    yield from (e for e in elements
                if all(e[1][k] in p for k, p in zip(kept, picked, strict=True)))


def _points(axes: tuple[GridAxis, ...], env: Env, load: Any = None) -> Iterator[dict[str, int]]:
    if not axes:
        yield dict(env)
        return
    for k in range(evaluate(axes[0].extent, env, load)):
        yield from _points(axes[1:], {**env, axes[0].var: k}, load)


def _visited(nest: Nest, env: dict[str, int], load: Any, k: int = 0) -> Iterator[tuple[int, ...]]:
    if k == len(nest.axes):
        if all(evaluate(g, env, load) for g in nest.guards):
            yield tuple(evaluate(i, env, load) for i in nest.index)
        return
    axis = nest.axes[k]
    v, stop = evaluate(axis.lo, env, load), evaluate(axis.hi, env, load)
    while v < stop:
        yield from _visited(nest, {**env, axis.var: v}, load, k + 1)
        v += axis.step


def _indices(
    axis: Axis, size: int, pad: tuple[int, int], env: Env, load: Any, tensor: str
) -> list[int]:
    """Elements on one axis, without the padding; what lies beyond it is Outside."""
    low, high = -pad[0], size + pad[1]
    match axis:
        case Point(index):
            found = [evaluate(index, env, load)]
        case Rows(var, extent, index):
            rows = range(evaluate(extent, env, load))
            found = [evaluate(index, {**env, var: k}, load) for k in rows]
        case Slice(start, stop):
            a, b = evaluate(start, env, load), evaluate(stop, env, load)
            data = bool(loads_of(start, stop))
            if a < low or (a < b and a >= high and not data):
                raise Outside(tensor)
            return list(range(max(a, 0), min(b, size)))
    if any(not low <= i < high for i in found):
        raise Outside(tensor)
    return [i for i in found if 0 <= i < size]


def order_of(world: World) -> list[int]:
    """For each act the bit set of acts that surely ended before it starts, by events alone and
    taking every count as exact. Acts are in program order, along which legal edges go."""
    notifiers: dict[Cell, int] = {}
    clocks: list[int] = []
    for k, act in enumerate(world.acts):
        clocks.append(clock_at(act, clocks, notifiers, 10**6))
        mine = clocks[k] | 1 << k
        for cell in act.notified:
            notifiers[cell] = notifiers.get(cell, 0) | mine
    return clocks


def clock_at(act: Act, clocks: list[int], notifiers: Mapping[Cell, int], stage: int) -> int:
    """What is before the act when its first `stage` waits are done."""
    clock = 0 if act.parent is None else clocks[act.parent] | 1 << act.parent
    for w in act.waited:
        if w.stage < stage and w.target > 0:
            clock |= notifiers.get(w.cell, 0)
    return clock
