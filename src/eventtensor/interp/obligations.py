"""Debug checks of what the proof took as true about run-time data. The arguments are checked before
the run. What tasks write is checked when a task first loads from the tensor after it changed, and
at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..ir.data_facts import BrokenFact, ProgramData, broken_facts
from .evaluate import Place
from .shadow_memory import Memory

Found = Callable[[list[BrokenFact], Place | None], None]


def raise_found(found: list[BrokenFact], who: Place | None) -> None:
    """What a debug run does with broken declarations. `who` has just loaded the data."""
    first = found[0]
    if who is None:
        raise first.error(first.what, place=first.place)
    raise first.error(f"{first.what} (loaded by {who.label})", place=who.place)


@dataclass(slots=True)
class Obligations:
    memory: Memory
    dims: Mapping[str, int]
    found: Found = raise_found
    stale: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stale = {t.name for t in self.memory.program.tensors}

    def start(self) -> None:
        """Check arguments. Facts of what the program writes wait for the first load of it."""
        program = self.memory.program
        written = {
            r.tensor for p in program.calls for r in (*p.call.accumulates, *p.call.writes)}
        given = {t.name for t in program.tensors if t.role.starts_defined}
        self._check(given, settled=given - written)
        self.stale |= written

    def changed(self, tensors: set[str]) -> None:
        self.stale |= tensors

    def loaded(self, name: str, who: Place) -> None:
        """Check everything declared of a tensor that `who` just loaded from."""
        if name in self.stale:
            self._check({name}, who)

    def end(self) -> None:
        """Check what changed and was not loaded from."""
        self._check(set(self.stale))

    def _check(
        self, names: set[str], who: Place | None = None, settled: set[str] | None = None
    ) -> None:
        self.stale -= names
        memory = self.memory
        data = ProgramData(memory.program, self.dims, memory.arrays, memory.written)
        found = list(broken_facts(data, names, settled))
        if found:
            self.found(found, who)
