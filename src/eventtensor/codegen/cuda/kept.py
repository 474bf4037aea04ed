"""Run-time data that says how many tiles a grid in a loop has, and that nothing in the loop writes:
a worker reads it in the first iteration, and then has it in shared memory. (Every acquire empties
the L1, so each later look would be a trip to the L2, ahead of the grid's first task.)"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...ir.expr import Load
from ...ir.program import PlacedCall, Program
from ...ir.walk import free_vars, loads_of
from .constants import KEPT


@dataclass(frozen=True)
class Kept:
    """Nothing in debug builds, where every wait is noted."""

    program: Program
    debug: bool

    @cached_property
    def _found(self) -> dict[Load, tuple[int, PlacedCall]]:
        """The number of each, and the call in whose header it is read."""
        found: dict[Load, tuple[int, PlacedCall]] = {}
        for p in self.program.calls if not self.debug else ():
            loads = loads_of(*(a.extent for a in p.call.grid))
            if len(p.loops) == 1 and not p.call.pushed and all(
                self._stays(load, p) for load in loads
            ):
                for load in loads:
                    if load not in found and len(found) < KEPT:
                        found[load] = len(found), p
        return found

    def _stays(self, load: Load, p: PlacedCall) -> bool:
        """True for one element that is written before the loop around the call, if at all."""
        return not free_vars(*load.index) and not loads_of(*load.index) and not any(
            r.tensor == load.tensor and other.position[0] >= p.position[0]
            for other in self.program.calls
            for r in (*other.call.writes, *other.call.accumulates)
        )

    def read_by(self, p: PlacedCall) -> dict[Load, str]:
        """What the header of a call reads in the first iteration, and where it is then."""
        return {load: _place(n) for load, (n, by) in self._found.items() if by == p}

    def known(self, p: PlacedCall) -> dict[Load, str]:
        """What all workers have by the time that they come to the tiles of a call: one behind the
        call that reads it, in its loop."""
        return {load: _place(n) for load, (n, by) in self._found.items()
                if by.position[0] == p.position[0] and by.position <= p.position}


def _place(number: int) -> str:
    return f"et::kept()[{number}]"
