"""Runs a plan at concrete dims in an order that its events allow, then finds races and wrong
counts.

Tasks run one at a time. Vector clocks find out which could overlap. The result is a Report. Only
errors that stop the run are raised, and in debug broken obligations.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ..errors import BadPlan, CountMismatch, OutOfRange
from ..ir.expr import Const, Node
from ..ir.expr_functions import no_load
from ..ir.plan import Notify, Plan, Wait, nest_exprs, visit
from ..ir.program import PlacedCall, has_data_extent
from ..ir.walk import LoadFn, evaluate, loads_of
from .clocks import Access, Clocks, RunLog, WaitRecord
from .evaluate import Place
from .footprints import Footprint, grid_points, point
from .numbers import Array
from .obligations import Obligations
from .races import Conflicts
from .ready_queue import Hold, Order, ReadyQueue, dependents
from .run_report import Cell, CellState, Deadlock, Report, Stuck, Unwritten
from .shadow_memory import make_memory
from .task_steps import (
    ReadStep,
    Step,
    WaitStep,
    operands_read_in_steps,
    steps_before_body,
    task_steps,
)
from .tasks import Abandoned, Execution, Mode, iterations, program_rank, task_of


def run(
    plan: Plan,
    dims: Mapping[str, int],
    arrays: Mapping[str, Array],
    *,
    order: Order = Order.random,
    seed: int = 0,
    debug: bool = False,
    hold: Hold | None = None,
    relaxed: Collection[str] = (),
) -> Report:
    """Execute `plan`. `arrays` has every tensor except scratch; outputs and states are written in
    place. `hold` is a task, or a test of tasks, to hold back while others can run. Events in
    `relaxed` count but carry no order, which shows what their fences are for."""
    memory = make_memory(plan.program, dims, arrays, debug)
    obligations = Obligations(memory, dims) if debug else None
    if obligations is not None:
        obligations.start()
    machine = Machine(
        plan, dict(dims), Execution(memory, obligations), ReadyQueue(order, seed, hold)
    )
    with _no_collections():
        with np.errstate(all="ignore"):
            machine.run()
        if obligations is not None:
            obligations.end()
        return machine.report(debug, Clocks(machine.log, relaxed))


@contextmanager
def _no_collections() -> Iterator[None]:
    """Disable garbage collection: a run makes many objects and drops few."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(slots=True)
class _Node:
    """An unfinished task or header. `stage` steps are done; `missing` cells of the next step are
    below their count. `early` are the arguments that its steps read."""

    placed: PlacedCall
    env: dict[str, int]
    header: bool
    round: tuple[int, ...]
    steps: list[Step]
    notifies: tuple[Notify, ...]
    place: Place
    early: dict[int, Array]
    load: LoadFn
    stage: int = 0
    missing: int = 0


@dataclass(slots=True)
class _LoggingWatcher:
    """The watcher of one task, which logs accesses that may conflict. The body counts as run at
    `stage`, because a back end may store as early."""

    machine: Machine
    id: int
    stage: int | None = None

    def touch(self, mode: Mode, f: Footprint) -> None:
        machine = self.machine
        node = machine.nodes[self.id]
        stage = node.stage if self.stage is None else self.stage
        if f.element is not None:
            key = self.id, stage, mode, f.tensor, f.element
            if key in machine.points:
                return
            machine.points.add(key)
        machine.log.accesses.append(Access(self.id, stage, mode, f, node.round))

    def unwritten(self, tensor: str, index: tuple[int, ...]) -> None:
        task = self.machine.log.tasks[self.id]
        self.machine.log.unwritten.append(Unwritten(task, tensor, index))


@dataclass(slots=True)
class Machine:
    """The state of a run: cells, the tasks that wait for them, and the log."""

    plan: Plan
    dims: dict[str, int]
    execution: Execution
    ready: ReadyQueue
    log: RunLog = field(default_factory=RunLog)
    nodes: list[_Node] = field(default_factory=list)
    cells: dict[Cell, int] = field(default_factory=dict)
    sleeping: dict[Cell, dict[int, list[int]]] = field(default_factory=dict)
    abandoned: set[int] = field(default_factory=set)
    points: set[object] = field(default_factory=set)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    counts: dict[str, Node | None] = field(default_factory=dict)

    def run(self) -> None:
        self.start()
        while (id := self.ready.pop()) is not None:
            self.execute(id)

    # ---- creation of tasks ------------------------------------------------------------------

    def start(self) -> None:
        for e in self.plan.events:
            self.shapes[e.name] = tuple(evaluate(s, self.dims) for s in e.shape)
            self.counts[e.name] = e.count
        planned = {c.call for c in self.plan.calls}
        created: list[int] = []
        for placed in self.plan.program.calls:
            if placed.call.name not in planned:
                raise BadPlan(f"the plan has no entry for call '{placed.call.name}'")
            waits = self.plan.call(placed.call.name).header
            header = waits or has_data_extent(placed.call)
            for env in iterations(placed, self.dims, self.execution.functions):
                if header:
                    created.append(self.create(placed, env, waits, (), None, header=True))
                else:
                    created += self.create_grid(placed, env, no_load, None)
        self.wake(created)

    def create_grid(
        self, placed: PlacedCall, env: Mapping[str, int], load: LoadFn, parent: int | None
    ) -> list[int]:
        points = list(grid_points(placed.call.grid, env, load, self.execution.functions))
        plan = self.plan.call(placed.call.name)
        return [self.create(placed, p, plan.waits, plan.notifies, parent) for p in points]

    def create(
        self, placed: PlacedCall, env: dict[str, int], waits: tuple[Wait, ...],
        notifies: tuple[Notify, ...], parent: int | None, header: bool = False,
    ) -> int:
        task, rank = task_of(placed, env, header), program_rank(placed, env, header)
        round = rank if header else rank[: len(rank) - len(placed.call.grid)]
        place = Place(task, placed.call.place)
        parts = operands_read_in_steps(placed.call, waits)
        early = {k: self.execution.empty_tile(placed.call, k, env, place) for k in parts}
        steps = task_steps(placed.call, waits, env)
        load = self.execution.loader(_LoggingWatcher(self, len(self.nodes)), place)
        self.nodes.append(_Node(placed, env, header, round, steps, notifies, place, early, load))
        return self.log.add(task, rank, parent)

    def wake(self, ids: list[int]) -> None:
        """Let new tasks do their first waits."""
        if self.ready.order is Order.adversarial:
            self.ready.scores = self.scores()
        for id in ids:
            self.advance(id)

    def scores(self) -> dict[int, int]:
        ids = sorted(range(len(self.nodes)), key=lambda i: self.log.ranks[i])
        waits = {i: [c for s in self.nodes[i].steps if isinstance(s, WaitStep)
                     for c in _known(s.wait, s.env)] for i in ids}
        notifies = {i: [c for n in self.nodes[i].notifies
                        for c in _known(n, self.nodes[i].env)] for i in ids}
        return dependents(ids, waits, notifies)

    # ---- waits -----------------------------------------------------------------------------

    def advance(self, id: int) -> None:
        """Do steps until a wait is not satisfied, or the task is ready."""
        node = self.nodes[id]
        try:
            while node.stage < len(node.steps):
                match node.steps[node.stage]:
                    case WaitStep(wait, env):
                        self.enter(id, wait, env)
                    case ReadStep() as step:
                        self.read(id, step)
                if node.missing:
                    return
                node.stage += 1
            if node.header:
                self.expand(id)
            else:
                self.ready.push(id, self.log.tasks[id], self.log.ranks[id])
        except Abandoned:
            self.abandoned.add(id)

    def read(self, id: int, step: ReadStep) -> None:
        """Read the slices of one iteration, after its waits."""
        node, watcher = self.nodes[id], _LoggingWatcher(self, id)
        for k, read in step.reads.items():
            for axes in read.slices:
                self.execution.read_slice(
                    node.placed.call, k, axes, step.env, watcher, node.place, node.early[k]
                )

    def enter(self, id: int, wait: Wait, env: Mapping[str, int]) -> None:
        """Look at every cell of a wait, and sleep on those below their count."""
        node = self.nodes[id]
        load, waited, visit = node.load, self.log.waited[id], self.execution.functions.visit
        found = [c for n in wait.cells for c in visit(n, env, load)]
        for index in dict.fromkeys(found):
            cell = self.cell(wait.event, index, node.place)
            target = self.count(cell, load)
            waited.append(WaitRecord(node.stage, cell, target))
            if self.cells.setdefault(cell, 0) < target:
                node.missing += 1
                self.sleeping.setdefault(cell, {}).setdefault(target, []).append(id)

    def cell(self, event: str, index: tuple[int, ...], place: Place) -> Cell:
        shape = self.shapes[event]
        if len(index) == len(shape):
            for i, s in zip(index, shape, strict=True):
                if not 0 <= i < s:
                    break
            else:
                return event, index
        raise OutOfRange(
            f"{place.label} uses cell {event}{list(index)}, outside its shape {list(shape)}",
            place=place.place,
            hint="check the wait and notify maps of the call",
        )

    def count(self, cell: Cell, load: LoadFn) -> int:
        event, index = cell
        count = self.counts[event]
        if count is None:
            raise BadPlan(f"event '{event}' has no count")
        if isinstance(count, Const):
            return count.value
        scope = {**self.dims, **{f"c{k}": c for k, c in enumerate(index)}}
        return self.execution.functions.value(count, scope, load)

    # ---- execution -------------------------------------------------------------------------

    def expand(self, id: int) -> None:
        """Create the grid of a header whose waits are satisfied."""
        node = self.nodes[id]
        created = self.create_grid(node.placed, node.env, node.load, id)
        self.log.executed.append(id)
        self.wake(created)

    def execute(self, id: int) -> None:
        node = self.nodes[id]
        try:
            watcher = _LoggingWatcher(self, id, steps_before_body(node.steps))
            self.execution.run(node.placed.call, node.env, watcher, node.place, node.early)
            self.log.executed.append(id)
            cells = self.notified(id)
        except Abandoned:
            self.abandoned.add(id)
            return
        for cell in cells:
            self.log.notifiers.setdefault(cell, []).append(id)
            self.notify(cell)

    def notified(self, id: int) -> list[Cell]:
        """The cells that a task notifies. The map may load what the task has just written."""
        node, visit = self.nodes[id], self.execution.functions.visit
        return [
            self.cell(notify.event, index, node.place)
            for notify in node.notifies
            for nest in notify.cells
            for index in visit(nest, node.env, node.load)
        ]

    def notify(self, cell: Cell) -> None:
        self.cells[cell] = self.cells.get(cell, 0) + 1
        for id in self.sleeping.get(cell, {}).pop(self.cells[cell], ()):
            self.nodes[id].missing -= 1
            if not self.nodes[id].missing:
                self.nodes[id].stage += 1
                self.advance(id)

    # ---- report ----------------------------------------------------------------------------

    def report(self, debug: bool, clocks: Clocks) -> Report:
        log = self.log
        conflicts = Conflicts(log, clocks)
        deadlock = self.deadlock()
        if debug and deadlock is None and not self.abandoned:
            self.check_counts()
            self.execution.memory.check_outputs()
        return Report(
            order=tuple(log.tasks[i] for i in log.executed if not log.tasks[i].header),
            races=conflicts.races(),
            deadlock=deadlock,
            over_notified=tuple(
                c for c in self.states() if c.seen > c.expected and c.event in self.waited_events()
            ),
            uninitialised=tuple(dict.fromkeys(log.unwritten)),
            cells=dict(self.cells),
            find_unneeded=conflicts.unneeded,
            place=f"program '{self.plan.program.name}'",
        )

    def waited_events(self) -> set[str]:
        """The events for which tasks wait. The counts of others do not matter."""
        calls = self.plan.calls
        return {w.event for c in calls for w in (*c.header, *c.waits)}

    def deadlock(self) -> Deadlock | None:
        """The unfinished tasks. If a task was abandoned, others may wait for it without a
        deadlock."""
        done = set(self.log.executed)
        ids = [i for i in range(len(self.nodes)) if i not in done]
        if not ids or self.abandoned:
            return None
        ids.sort(key=lambda i: self.log.ranks[i])
        return Deadlock(tuple(Stuck(self.log.tasks[i], self.held_by(i)) for i in ids))

    def held_by(self, id: int) -> CellState:
        stage = self.nodes[id].stage
        return next(
            CellState(*w.cell, w.target, self.cells[w.cell])
            for w in self.log.waited[id]
            if w.stage == stage and self.cells[w.cell] < w.target
        )

    def waited_targets(self) -> dict[Cell, int]:
        return {w.cell: w.target for waited in self.log.waited for w in waited}

    def states(self) -> list[CellState]:
        """Every cell with its count, as a waiter saw it or as the data is now."""
        targets = self.waited_targets()
        out = []
        for cell in sorted(self.cells):
            try:
                target = targets[cell] if cell in targets else self.count(cell, self._peek)
            except Abandoned:
                continue
            out.append(CellState(*cell, target, self.cells[cell]))
        return out

    def _peek(self, tensor: str, index: tuple[int, ...]) -> int:
        memory = self.execution.memory
        if memory.first_unwritten(point(tensor, index)) is not None:
            raise Abandoned
        return int(memory.arrays[tensor][index])

    def check_counts(self) -> None:
        waited = self.waited_targets()
        for state in self.states():
            if (state.event, state.index) in waited and state.seen != state.expected:
                raise CountMismatch(
                    f"cell {state} when all tasks have ended",
                    place=f"program '{self.plan.program.name}'",
                )


def _known(use: Wait | Notify, env: Mapping[str, int]) -> Iterator[Cell]:
    """The cells that do not depend on run-time data."""
    for nest in use.cells:
        if not loads_of(*nest_exprs(nest)):
            yield from ((use.event, c) for c in visit(nest, env))
