"""Checks in debug what the proof assumes of run-time data.

Arguments are checked before the run. Data that tasks write is checked at the first load after a
change, and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..ir.data_facts import BrokenFact, ProgramData, broken_facts
from .evaluate import Place
from .shadow_memory import ShadowMemory

OnBroken = Callable[[list[BrokenFact], Place | None], None]


def raise_broken(found: list[BrokenFact], who: Place | None) -> None:
    """Raise the first broken declaration, as a debug run does. `who` has just loaded the data."""
    first = found[0]
    if who is None:
        raise first.error(first.what, place=first.place)
    raise first.error(f"{first.what} (loaded by {who.label})", place=who.place)


@dataclass(slots=True)
class Obligations:
    """The checks of one run. `stale` tensors changed since their last check."""

    memory: ShadowMemory
    dims: Mapping[str, int]
    on_broken: OnBroken = raise_broken
    stale: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stale = {t.name for t in self.memory.program.tensors}

    def start(self) -> None:
        """Check arguments. Facts about data that the program writes are checked at its first
        load."""
        program = self.memory.program
        written = {
            r.tensor for p in program.calls for r in (*p.call.accumulates, *p.call.writes)}
        given = {t.name for t in program.tensors if t.role.starts_defined}
        self._check(given, final=given - written)
        self.stale |= written

    def mark_changed(self, tensors: set[str]) -> None:
        self.stale |= tensors

    def check_load(self, name: str, who: Place) -> None:
        """Check all declarations of a tensor from which `who` has just loaded."""
        if name in self.stale:
            self._check({name}, who)

    def end(self) -> None:
        """Check tensors that changed since their last check."""
        self._check(set(self.stale))

    def _check(
        self, names: set[str], who: Place | None = None, final: set[str] | None = None
    ) -> None:
        self.stale -= names
        memory = self.memory
        data = ProgramData(memory.program, self.dims, memory.arrays, memory.written)
        found = list(broken_facts(data, names, final))
        if found:
            self.on_broken(found, who)
