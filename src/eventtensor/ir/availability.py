"""What may be read before a task has waited for all: tensors that nobody writes, and those whose
writers are behind the waits already done. Plans and code generators both ask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .expr import Load, Node, Var
from .plan import Nest, Plan, Wait
from .program import PlacedCall
from .tensor import Point, Region, region_exprs
from .walk import free_vars, loads_of


@dataclass(frozen=True)
class Settled:
    """Data that no task writes any more as soon as a task of `placed` has done the waits `done`."""

    plan: Plan
    placed: PlacedCall
    done: tuple[Wait, ...] = ()

    def after(self, wait: Wait) -> Settled:
        return Settled(self.plan, self.placed, (*self.done, wait))

    def needed(self, waits: tuple[Wait, ...], *exprs: Node) -> tuple[Wait, ...] | None:
        """Waits, of one cell for the whole grid each, after which all run-time data in expressions
        may be read, as far as it may not already; None if those are not enough."""
        loops = {lp.var for lp in self.placed.loops}
        found = tuple(
            w for w in waits
            if w.chunk is None and _one_cell(w.cells, loops) is not None
            and not loads_of(*self._count(w))
        )
        if not self._with(found).loads(*exprs):
            return None
        for w in found:
            fewer = tuple(x for x in found if x != w)
            if self._with(fewer).loads(*exprs):
                found = fewer
        return found

    def _count(self, wait: Wait) -> tuple[Node, ...]:
        count = self.plan.event(wait.event).count
        return () if count is None else (count,)

    def _with(self, waits: tuple[Wait, ...]) -> Settled:
        return replace(self, done=self.done + waits)

    def loads(self, *exprs: Node) -> bool:
        """True if all run-time data in expressions may be read."""
        return all(self._load(x) for x in loads_of(*exprs))

    def region(self, region: Region) -> bool:
        """True if a region may be read as a whole."""
        index = tuple(a.index if isinstance(a, Point) else None for a in region.axes)
        return self.loads(*region_exprs(region)) and self._elements(region.tensor, index)

    def _load(self, load: Load) -> bool:
        return self._elements(load.tensor, load.index)

    def _elements(self, tensor: str, index: tuple[Node | None, ...]) -> bool:
        return all(
            self._behind(p, r, index)
            for p in self.plan.program.calls
            for r in (*p.call.writes, *p.call.accumulates) if r.tensor == tensor
        )

    def _behind(self, writer: PlacedCall, region: Region, index: tuple[Node | None, ...]) -> bool:
        """True if a wait that is done counts every task of `writer` that touches such elements:
        all of them, or those of the iteration that the index names."""
        names = {lp.var for lp in writer.loops}
        named = {
            axis.index.name for axis, at in zip(region.axes, index, strict=True)
            if isinstance(axis, Point) and isinstance(axis.index, Var) and axis.index == at
        }
        if region.tensor in self.plan.own:  # the axis that named it is gone, but not the order
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
    """The index of the one cell that is visited whatever the coordinates of the grid are."""
    if len(cells) != 1 or not cells[0].single:
        return None
    index = cells[0].index
    return index if free_vars(*index) <= loops and not loads_of(*index) else None
