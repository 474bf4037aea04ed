"""Programs whose derived events are kept as golden text, and how that text is made.

Run `python -m support.goldens` in tests/ to write the files anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import eventtensor as et
from eventtensor.ir.text import event_text, nest_text
from tests.support import bases
from tests.support.backends import passes

GOLDEN = Path(__file__).parents[1] / "golden"


def event_lines(program: et.Program) -> Iterator[str]:
    """Event tensors, then the waits and notifies of each call."""
    state = passes(program)
    assert state.derived is not None and state.report is not None
    d = state.derived
    yield f"program {state.program.name}: {state.report.status}"
    yield from (event_text(e) for e in d.events)
    for p in state.program.calls:
        name = p.call.name
        yield f"call {name}({', '.join(p.vars)})"
        for w in (*d.headers[name], *d.waits[name]):
            yield from (f"  wait {w.event}: {nest_text(n)}" for n in w.cells)
        for s in d.notifies[name]:
            yield from (f"  notify {s.event}: {nest_text(n)}" for n in s.cells)


def event_text_of(program: et.Program) -> str:
    return "\n".join(event_lines(program)) + "\n"


PROGRAMS: dict[str, Callable[[], et.Program]] = {
    "row_sum": bases.row_sum,
    "halo": bases.halo,
    "broadcast": bases.broadcast,
    "reduction": bases.reduction,
    "two_tiles": bases.two_tiles,
    "two_grids": bases.two_grids,
    "cross": bases.cross,
    "triangle": bases.triangle,
    "chain": bases.chain,
    "unordered": lambda: bases.chain(unordered=True),
    "ring1": lambda: bases.ring(1, second=4),
    "ring2": lambda: bases.ring(2, second=4),
    "ring3": lambda: bases.ring(3, second=4),
    "ring1_free": lambda: bases.ring(1, chain=False, second=4),
    "ring2_free": lambda: bases.ring(2, chain=False, second=4),
    "substitution": bases.substitution,
}


def path_of(name: str) -> Path:
    return GOLDEN / f"events_{name}.txt"


if __name__ == "__main__":
    for key, make in PROGRAMS.items():
        path_of(key).write_text(event_text_of(make()))
