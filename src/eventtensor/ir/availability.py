"""Which data a task may read before it has done all its waits.

It may read tensors that no task writes, and those whose writers the waits already done have
counted. Plans and code generators both ask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .expr import Load, Node, Var
from .plan import Nest, Plan, Wait
from .program import PlacedCall
from .tensor import Point, Region, region_exprs
from .walk import free_vars, loads_of


@dataclass(frozen=True)
class DataAvailability:
    """The data that is final once a task of `placed` has done the waits `done`."""

    plan: Plan
    placed: PlacedCall
    done: tuple[Wait, ...] = ()

    def with_wait(self, wait: Wait) -> DataAvailability:
        return DataAvailability(self.plan, self.placed, (*self.done, wait))

    def required_waits(self, waits: tuple[Wait, ...], *exprs: Node) -> tuple[Wait, ...] | None:
        """The waits after which all run-time data in the expressions may be read. Each waits for
        one cell for the whole grid. None if such waits are not enough."""
        loops = {lp.var for lp in self.placed.loops}
        found = tuple(
            w
            for w in waits
            if w.loop is None
            and _one_cell(w.cells, loops) is not None
            and not loads_of(*self._count(w))
        )
        if not self._with(found).are_loads_known(*exprs):
            return None
        for w in found:
            fewer = tuple(x for x in found if x != w)
            if self._with(fewer).are_loads_known(*exprs):
                found = fewer
        return found

    def _count(self, wait: Wait) -> tuple[Node, ...]:
        count = self.plan.event(wait.event).count
        return () if count is None else (count,)

    def _with(self, waits: tuple[Wait, ...]) -> DataAvailability:
        return replace(self, done=self.done + waits)

    def are_loads_known(self, *exprs: Node) -> bool:
        """True if all run-time data in the expressions may be read."""
        return all(self._load(x) for x in loads_of(*exprs))

    def is_region_known(self, region: Region) -> bool:
        """True if the whole region may be read."""
        index = tuple(a.index if isinstance(a, Point) else None for a in region.axes)
        return self.are_loads_known(*region_exprs(region)) and self._elements(region.tensor, index)

    def _load(self, load: Load) -> bool:
        return self._elements(load.tensor, load.index)

    def _elements(self, tensor: str, index: tuple[Node | None, ...]) -> bool:
        return all(
            self._is_counted(p, r, index)
            for p in self.plan.program.calls
            for r in (*p.call.writes, *p.call.accumulates)
            if r.tensor == tensor
        )

    def _is_counted(
        self, writer: PlacedCall, region: Region, index: tuple[Node | None, ...]
    ) -> bool:
        """True if a wait that is done counts every task of `writer` that touches such elements: all
        its tasks, or those of the iteration that the index names."""
        names = {lp.var for lp in writer.loops}
        named = {
            axis.index.name for axis, at in zip(region.axes, index, strict=True)
            if isinstance(axis, Point) and isinstance(axis.index, Var) and axis.index == at
        }
        if (
            region.tensor in self.plan.iteration_private
        ):  # the axis of the loop is gone, and the order is not
            named |= {lp.var for lp in writer.loops[:1]}
        same = writer.loops == self.placed.loops[: len(writer.loops)]
        if not (same and names <= named and writer.position < self.placed.position):
            return False
        notified = {
            (n.event, cell) for n in self.plan.call(writer.call.name).notifies
            if (cell := _one_cell(n.cells, names)) is not None
        }
        return any((w.event, _one_cell(w.cells, names)) in notified for w in self.done)


def _one_cell(cells: tuple[Nest, ...], loops: set[str]) -> tuple[Node, ...] | None:
    """The index of the one cell that all tasks of a grid visit, or None."""
    if len(cells) != 1 or not cells[0].is_single:
        return None
    index = cells[0].index
    return index if free_vars(*index) <= loops and not loads_of(*index) else None
