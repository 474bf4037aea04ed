"""One instance of a program at given dims: which tasks are ordered before a task, by search.

Used to confirm a witness before it is reported. Programs without run-time data only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

import islpy as isl

from ..ir.expr import Const, Var
from ..ir.plan import Nest, NestAxis, visit
from ..ir.program import PlacedCall, Program
from .access import HEADER, MARK
from .derive import Derived
from .sets.witness import Pair, pairs_by_size

Key = tuple[str, tuple[int, ...]]
LIMIT = 200_000
SIZES, PAIRS = 10, 5_000


class TooLarge(Exception):
    """More tasks than are worth enumerating."""


class Instance:
    def __init__(self, program: Program, derived: Derived, dims: dict[str, int]) -> None:
        self.program, self.derived, self.dims = program, derived, dims
        self.notifiers: dict[Key, list[Key]] = defaultdict(list)
        total = 0
        for p in program.calls:
            for coords in self.tasks(p.call.name):
                total += 1
                if total > LIMIT:
                    raise TooLarge
                env = self.env(p.call.name, coords)
                for n in derived.notifies[p.call.name]:
                    for cell in chain.from_iterable(visit(nest, env) for nest in n.cells):
                        self.notifiers[n.event, cell].append((p.call.name, coords))

    def tasks(self, call: str) -> Iterator[tuple[int, ...]]:
        p = self.program.placed(call)
        axes = tuple(NestAxis(a.var, Const(0), a.extent) for a in p.axes)
        yield from visit(Nest(axes, (), tuple(Var(v) for v in p.vars)), self.dims)

    def env(self, call: str, coords: tuple[int, ...]) -> dict[str, int]:
        names = self.program.placed(call).vars
        return {**self.dims, **dict(zip(names, coords, strict=False))}

    def waited(self, task: Key) -> Iterator[Key]:
        """Cells that a task waits for until it ends."""
        call, coords = task
        env = self.env(call, coords)
        for w in (*self.derived.headers[call], *self.derived.waits[call]):
            for nest in w.all_cells():
                for cell in visit(nest, env):
                    yield w.event, cell

    def first_waited(self, task: Key) -> Iterator[Key]:
        """Cells that a task waits for before its body, or before an iteration of a loop in it."""
        node, coords = task
        call, _, var = node.partition(MARK)
        env = self.env(call, coords)
        for w in (*self.derived.headers[call], *self.derived.waits[call]):
            if w.chunk is not None and str(w.chunk.var) != var:
                continue
            for v in range(coords[-1] + 1) if w.chunk is not None else (0,):
                for nest in w.cells:
                    for cell in visit(nest, {**env, f"%{var}": v}):
                        yield w.event, cell

    def ordered(self, first: Key, second: Key) -> bool:
        """True if `first` has finished before `second` starts, by events alone."""
        seen: set[Key] = set()
        todo = [second]
        while todo:
            task = todo.pop()
            for cell in self.first_waited(task) if task is second else self.waited(task):
                for before in self.notifiers.get(cell, ()):
                    if before == first:
                        return True
                    if before not in seen:
                        seen.add(before)
                        todo.append(before)
        return False


def unordered_pair(
    program: Program, derived: Derived, a: PlacedCall, b: PlacedCall, pairs: isl.Map
) -> Pair | None:
    """The first pair of tasks, by dims, that is really not ordered; a few small sizes are tried."""
    for dims, values in pairs_by_size(pairs, SIZES, PAIRS):
        try:
            instance = Instance(program, derived, dims)
        except TooLarge:
            return None
        for v in values:
            first, second = v[: len(a.vars)], v[len(a.vars) :]
            names = (a.call.name.removesuffix(HEADER), b.call.name.removesuffix(HEADER))
            if not instance.ordered((names[0], first), (names[1], second)):
                return dims, v
    return None
