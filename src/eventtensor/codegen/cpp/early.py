"""What a task may read before it has waited for all: tensors that nobody writes, and those whose
writers are behind the waits already done. Their places and small operands need not be looked up
when the last input arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...ir.expr import Load, Node, Select, Var
from ...ir.plan import Nest, Plan, Wait
from ...ir.program import PlacedCall
from ...ir.tensor import Point, Region, Rows, region_exprs
from ...ir.walk import children, free_vars, loads_of


def sure_loads(e: Node) -> Iterator[Load]:
    """Loads that are done whatever the values are, inner ones first."""
    if isinstance(e, Select):
        yield from sure_loads(e.cond)
        return
    for child in children(e):
        yield from sure_loads(child)
    if isinstance(e, Load):
        yield e


def place_loads(regions: Sequence[Region]) -> tuple[Load, ...]:
    """Run-time data that decides where regions lie, but for the rows of gathered ones."""
    exprs = [e for r in regions for e in region_exprs(r)]
    rows = {a.var for r in regions for a in r.axes if isinstance(a, Rows)}
    found = dict.fromkeys(x for e in exprs for x in sure_loads(e))
    return tuple(x for x in found if not free_vars(x) & rows)


@dataclass(frozen=True)
class Settled:
    """Data that no task writes any more as soon as a task of `placed` has done the waits `done`."""

    plan: Plan
    placed: PlacedCall
    done: tuple[Wait, ...] = ()

    def after(self, wait: Wait) -> Settled:
        return Settled(self.plan, self.placed, (*self.done, wait))

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
    if len(cells) != 1 or cells[0].axes or cells[0].guards:
        return None
    index = cells[0].index
    return index if free_vars(*index) <= loops and not loads_of(*index) else None
