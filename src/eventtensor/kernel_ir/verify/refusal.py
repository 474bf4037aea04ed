"""Where in a function a statement stands, and how a check refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from ...errors import KernelRefused
from .. import statements as st
from ..kernel_text import stmt_lines

_LINES = 6  # of a refused statement that are shown


@dataclass(frozen=True, slots=True)
class Place:
    """A statement, and the steps that lead to it."""

    function: st.Function
    steps: tuple[str, ...]
    stmt: st.Stmt

    def refuse(self, error: type[KernelRefused], reason: str) -> KernelRefused:
        lines = list(islice(stmt_lines(self.stmt), _LINES + 1))
        shown = [*lines[:_LINES], "..."] if len(lines) > _LINES else lines
        text = "\n".join(f"    {line}" for line in shown)
        return error(self.function.name, " / ".join(self.steps), text, reason)

    def inside(self, number: int, s: st.Stmt) -> Place:
        return Place(self.function, (*self.steps, step(number, s)), s)


def places(f: st.Function) -> list[Place]:
    """The statements of a function's body, without those inside them."""
    return [Place(f, (step(k, s),), s) for k, s in enumerate(f.body)]


def within(at: Place, body: st.Block) -> list[Place]:
    return [at.inside(k, s) for k, s in enumerate(body)]


def step(number: int, s: st.Stmt) -> str:
    return f"{number} {type(s).__name__.lower()}"
