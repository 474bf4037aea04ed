"""Checks data against the obligations of a proof.

They are declared facts, counts of events, elements that must be written before a read, and indices
that bodies compute. The program is walked in its own order. Only bodies run that compute data which
an obligation needs; of other tasks regions and events alone are evaluated. Computed data must be as
declared at every load, even if a later task overwrites it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import CountMismatch, EventTensorError, UninitialisedRead
from ..ir.data_facts import BrokenFact, tensors_of
from ..ir.plan import Notify, Plan, Wait, nest_exprs, visit
from ..ir.program import Call, Item, Loop, PlacedCall, Program
from ..ir.tensor import Region, region_exprs
from ..ir.walk import LoadFn, evaluate, loads_of
from .evaluate import Place
from .footprints import grid_points
from .numbers import Array
from .obligations import Obligations
from .reference import StrictWatcher
from .run_report import Cell
from .shadow_memory import make_memory
from .tasks import Execution, task_of


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of obligations: events with counts, tensors that tasks read, and calls that
    compute indices."""

    events: frozenset[str]
    tensors: frozenset[str]
    calls: frozenset[str]


def violations(
    program: Program,
    plan: Plan,
    dims: Mapping[str, int],
    arrays: Mapping[str, Array],
    subjects: Subjects,
) -> list[BrokenFact]:
    """All that the data breaks. The arrays are not changed."""
    own = {t.name for t in program.tensors if not t.role.read_only}
    memory = make_memory(program, dims, {n: x.copy() if n in own else x for n, x in arrays.items()})
    found: dict[BrokenFact, None] = {}

    def note(broken: list[BrokenFact], who: Place | None) -> None:
        found.update(dict.fromkeys(broken))
        if who is not None:  # the task would go on with wrong data
            raise _Stop

    obligations = Obligations(memory, dims, note)
    computed = frozenset(
        r.tensor for p in program.calls for r in (*p.call.accumulates, *p.call.writes)
    )
    subjects = replace(
        subjects, events=subjects.events | _events_of_computed_data(program, plan, computed)
    )
    walk = _Walk(
        program,
        plan,
        dims,
        Execution(memory, obligations),
        subjects,
        data_producers(program, subjects.calls),
        computed,
        found,
    )
    obligations.start()
    if found:
        return list(found)
    try:
        with np.errstate(all="ignore"):
            walk.items(program.body, dict(dims))
        obligations.end()
        walk.compare_counts()
    except _Stop:
        pass
    except EventTensorError as e:
        found[BrokenFact(type(e), e.message, e.place)] = None
    return list(found)


class _Stop(Exception):
    """Data that decides the accesses of tasks is not as declared."""


def data_producers(program: Program, checked: Collection[str] = ()) -> set[str]:
    """The calls whose bodies must run: those in `checked`, those that compute data with
    declarations or data that decides indices, extents or counts, and those that compute what these
    read."""
    needed = {t.name for t in program.tensors if t.bound or t.monotone or t.distinct}
    needed |= {name for fact in program.facts for name in tensors_of(fact)}
    for e in program.events:
        needed |= {n.tensor for n in loads_of(*(() if e.count is None else (e.count,)))}
    for p in program.calls:
        needed |= _placing_tensors(p.call)
    found: set[str] = set()
    while True:
        new = [
            p.call for p in program.calls if p.call.name not in found and (
                p.call.name in checked
                or any(r.tensor in needed for r in (*p.call.accumulates, *p.call.writes)))
        ]
        if not new:
            return found
        for call in new:
            found.add(call.name)
            needed |= {r.tensor for r in (*call.reads, *call.accumulates)}


def _events_of_computed_data(program: Program, plan: Plan, computed: frozenset[str]) -> set[str]:
    """Events whose maps or counts load computed data."""
    found = set()
    for p in program.calls:
        planned = plan.call(p.call.name)
        uses: tuple[Wait | Notify, ...] = (*planned.header, *planned.waits, *planned.notifies)
        for use in uses:
            count = plan.event(use.event).count
            exprs = [x for nest in use.cells for x in nest_exprs(nest)]
            if computed & {
                n.tensor for n in loads_of(*exprs, *(() if count is None else (count,)))
            }:
                found.add(use.event)
    return found


def _placing_tensors(call: Call) -> set[str]:
    """The tensors that decide which elements and cells a call uses."""
    regions = (*call.regions, *(call.waits or ()), *(call.notifies or ()))
    exprs = [a.extent for a in call.grid]
    return {n.tensor for n in loads_of(*exprs, *(e for r in regions for e in region_exprs(r)))}


@dataclass(slots=True)
class _Walk:
    program: Program
    plan: Plan
    dims: Mapping[str, int]
    execution: Execution
    subjects: Subjects
    running: set[str]
    computed: frozenset[str]
    found: dict[BrokenFact, None]
    notified: dict[Cell, int] = field(default_factory=dict)
    expected: dict[tuple[Cell, int], Place] = field(default_factory=dict)

    def items(self, items: tuple[Item, ...], env: Mapping[str, int]) -> None:
        for item in items:
            if isinstance(item, Loop):
                for k in range(evaluate(item.extent, env)):
                    self.items(item.body, {**env, item.var: k})
            elif self.is_concerned(item):
                self.call(self.program.placed(item.name), env)

    def is_concerned(self, call: Call) -> bool:
        """True if an obligation concerns the call."""
        planned = self.plan.call(call.name)
        uses: tuple[Wait | Notify, ...] = (*planned.header, *planned.waits, *planned.notifies)
        events = {u.event for u in uses}
        return (
            call.name in self.running
            or call.name in self.subjects.calls
            or bool(events & self.subjects.events)
            or any(r.tensor in self.subjects.tensors for r in call.regions)
            or bool(_placing_tensors(call) & self.computed)
        )

    def call(self, placed: PlacedCall, env: Mapping[str, int]) -> None:
        planned = self.plan.call(placed.call.name)
        header, load = self.reader(placed, env, header=True)
        for wait in planned.header:
            self.wait(wait, env, load, header.place)
        tiles = list(grid_points(placed.call.grid, env, load, self.execution.functions))
        for point in tiles:
            watcher, load = self.reader(placed, point)
            for wait in planned.waits:
                self.wait(wait, point, load, watcher.place)
            if placed.call.name in self.running:
                self.execution.run(placed.call, point, watcher, watcher.place, {})
            else:
                self.touch(placed.call, point, load, watcher.place)
            for notify in planned.notifies:
                if notify.event in self.subjects.events:
                    for nest in notify.cells:
                        for index in visit(nest, point, load):
                            cell = notify.event, index
                            self.notified[cell] = self.notified.get(cell, 0) + 1

    def reader(
        self, placed: PlacedCall, env: Mapping[str, int], header: bool = False
    ) -> tuple[StrictWatcher, LoadFn]:
        watcher = StrictWatcher(Place(str(task_of(placed, env, header)), placed.call.place))
        return watcher, self.execution.loader(watcher, watcher.place)

    def wait(self, wait: Wait, env: Mapping[str, int], load: LoadFn, who: Place) -> None:
        if wait.event not in self.subjects.events:
            return
        count = self.plan.event(wait.event).count
        assert count is not None
        for nest in wait.all_cells():
            for index in visit(nest, env, load):
                scope = {**self.dims, **{f"c{k}": c for k, c in enumerate(index)}}
                self.expected.setdefault(((wait.event, index), evaluate(count, scope, load)), who)

    def touch(self, call: Call, env: Mapping[str, int], load: LoadFn, who: Place) -> None:
        """Check the regions of a task whose body does not run. Reads must be written; writes count
        as written."""
        memory = self.execution.memory
        checked = call.name in self.subjects.calls
        for k, region in enumerate(call.regions):
            looked = checked or region.tensor in self.subjects.tensors
            if not (looked or self.uses_computed_data(region)):
                continue
            f = self.execution.locate(region, env, load, who)
            if not looked:
                continue
            if k >= len(call.reads):
                memory.mark(f, np.ones(f.shape, np.bool_))
                continue
            index = memory.first_unwritten(f)
            if index is not None:
                self.found.setdefault(
                    BrokenFact(
                        UninitialisedRead,
                        f"{who.label} reads {f.tensor}{list(index)}, which nothing has written",
                        who.place,
                    )
                )

    def uses_computed_data(self, region: Region) -> bool:
        """True if computed data decides the region. The data is checked when it is loaded."""
        return any(n.tensor in self.computed for n in loads_of(*region_exprs(region)))

    def compare_counts(self) -> None:
        """Check that every waited cell gets as many notifies as its count."""
        for ((event, index), want), who in sorted(self.expected.items(), key=lambda item: item[0]):
            got = self.notified.get((event, index), 0)
            if want != got:
                self.found.setdefault(
                    BrokenFact(
                        CountMismatch,
                        f"{event}{list(index)}, which {who.label} waits for, has the count "
                        f"{want} but gets {got} notifies",
                        who.place,
                    )
                )
