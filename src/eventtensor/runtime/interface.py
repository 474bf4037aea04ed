"""A program seen by those who launch it: what its arguments are, and the names that reports use.

Made from a plan, or read back from an artifact, where there is no plan (so that nothing of the plan
is imported here).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.expr import Dim, Node
from ..ir.tensor import Tensor

if TYPE_CHECKING:
    from ..ir.plan import Plan


@dataclass(frozen=True, slots=True)
class CallNames:
    """A call: the coordinates of its tasks (loops first), and its place in the user's code."""

    name: str
    vars: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class EventNames:
    """An event tensor, as reports name its cells."""

    name: str
    shape: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a scratch tensor lies: a byte offset, over dims."""

    tensor: str
    offset: Node


@dataclass(frozen=True)
class Interface:
    """Dims by name; tensors, events and calls by their numbers in the plan."""

    name: str
    dims: tuple[Dim, ...]
    tensors: tuple[Tensor, ...]
    events: tuple[EventNames, ...]
    calls: tuple[CallNames, ...]


def interface_of(known: Plan | Interface) -> Interface:
    if isinstance(known, Interface):
        return known
    program = known.program
    return Interface(
        program.name, program.dims, program.tensors,
        tuple(EventNames(e.name, e.shape) for e in known.events),
        tuple(CallNames(p.call.name, p.vars, p.call.place) for p in program.calls),
    )
