"""The reference run: calls and loop iterations in order, tiles in lexicographic order.

It needs no plan and no events. Every other way to run a program is compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import UninitialisedRead
from ..ir.expr_functions import no_load
from ..ir.program import Item, Loop, PlacedCall, Program
from .evaluate import Place
from .footprints import Footprint, grid_points
from .numbers import Array
from .obligations import Obligations
from .shadow_memory import make_memory
from .tasks import Execution, Mode, task_of


@dataclass(slots=True)
class StrictWatcher:
    """A watcher that raises at a read of an unwritten element."""

    place: Place

    def touch(self, mode: Mode, f: Footprint) -> None:
        """There is nothing to log, because the order is the program's own."""

    def unwritten(self, tensor: str, index: tuple[int, ...]) -> None:
        raise UninitialisedRead(
            f"{self.place.label} reads {tensor}{list(index)}, which nothing has written",
            place=self.place.place,
        )


@dataclass(frozen=True, slots=True)
class _Run:
    program: Program
    execution: Execution

    def items(self, items: tuple[Item, ...], env: Mapping[str, int]) -> None:
        for item in items:
            if isinstance(item, Loop):
                for k in range(self.execution.functions.value(item.extent, env, no_load)):
                    self.items(item.body, {**env, item.var: k})
            else:
                self.call(self.program.placed(item.name), env)

    def call(self, placed: PlacedCall, env: Mapping[str, int]) -> None:
        header = self.watcher(placed, env, header=True)
        load = self.execution.loader(header, header.place)
        for point in list(grid_points(placed.call.grid, env, load, self.execution.functions)):
            watcher = self.watcher(placed, point)
            self.execution.run(placed.call, point, watcher, watcher.place, {})

    def watcher(
        self, placed: PlacedCall, env: Mapping[str, int], header: bool = False
    ) -> StrictWatcher:
        return StrictWatcher(Place(str(task_of(placed, env, header)), placed.call.place))


def run_reference(
    program: Program,
    dims: Mapping[str, int],
    arrays: Mapping[str, Array],
    *,
    debug: bool = False,
) -> None:
    """Run `program` at `dims`. `arrays` holds every tensor but scratch; outputs and states are
    written in place."""
    memory = make_memory(program, dims, arrays, debug)
    obligations = Obligations(memory, dims) if debug else None
    if obligations is not None:
        obligations.start()
    with np.errstate(all="ignore"):
        _Run(program, Execution(memory, obligations)).items(program.body, dict(dims))
    if obligations is not None:
        obligations.end()
