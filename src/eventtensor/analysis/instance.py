"""An instance of a program at given dims, in which a search finds the order of two tasks.

The proof confirms a witness with it before it reports one. Programs with run-time data have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

import islpy as isl

from ..ir.expr import Const, Var
from ..ir.plan import Nest, NestAxis, visit
from ..ir.program import PlacedCall, Program
from .access import HEADER, ITERATION_MARK
from .derive import Derived
from .sets.witness import Pair, pairs_by_size

TaskKey = tuple[str, tuple[int, ...]]
MAX_TASKS = 200_000
MAX_SIZES, MAX_PAIRS = 10, 5_000


class TooLarge(Exception):
    """The instance has more than MAX_TASKS tasks."""


class Instance:
    """The tasks of a program at `dims`, and the notifiers of each cell."""

    def __init__(self, program: Program, derived: Derived, dims: dict[str, int]) -> None:
        self.program, self.derived, self.dims = program, derived, dims
        self.notifiers: dict[TaskKey, list[TaskKey]] = defaultdict(list)
        total = 0
        for p in program.calls:
            for coords in self.tasks(p.call.name):
                total += 1
                if total > MAX_TASKS:
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

    def cells_until_end(self, task: TaskKey) -> Iterator[TaskKey]:
        """The cells for which a task waits until it ends."""
        call, coords = task
        env = self.env(call, coords)
        for w in (*self.derived.headers[call], *self.derived.waits[call]):
            for nest in w.all_cells():
                for cell in visit(nest, env):
                    yield w.event, cell

    def cells_before_start(self, task: TaskKey) -> Iterator[TaskKey]:
        """The cells for which a task waits before its body, or an iteration node before it
        starts."""
        node, coords = task
        call, _, var = node.partition(ITERATION_MARK)
        env = self.env(call, coords)
        for w in (*self.derived.headers[call], *self.derived.waits[call]):
            if w.loop is not None and str(w.loop.var) != var:
                continue
            for v in range(coords[-1] + 1) if w.loop is not None else (0,):
                for nest in w.cells:
                    for cell in visit(nest, {**env, f"%{var}": v}):
                        yield w.event, cell

    def is_ordered(self, first: TaskKey, second: TaskKey) -> bool:
        """True if `first` has finished before `second` starts, by events alone."""
        seen: set[TaskKey] = set()
        todo = [second]
        while todo:
            task = todo.pop()
            for cell in (
                self.cells_before_start(task) if task is second else self.cells_until_end(task)
            ):
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
    """The first pair of tasks, by dims, that no event orders. Only small sizes are searched."""
    for dims, values in pairs_by_size(pairs, MAX_SIZES, MAX_PAIRS):
        try:
            instance = Instance(program, derived, dims)
        except TooLarge:
            return None
        for v in values:
            first, second = v[: len(a.vars)], v[len(a.vars) :]
            names = (a.call.name.removesuffix(HEADER), b.call.name.removesuffix(HEADER))
            if not instance.is_ordered((names[0], first), (names[1], second)):
                return dims, v
    return None
