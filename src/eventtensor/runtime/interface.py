"""A program seen by those who launch it: what its arguments are, and the names that reports use.

Made from a plan, or read back from an artifact, where there is no plan (so that nothing of the plan
is imported here).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..ir.expr import Dim, Node
from ..ir.tensor import Tensor
from .overflow_check import Count, Sizes

if TYPE_CHECKING:
    from ..ir.plan import Plan
    from ..ir.program import Program


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
    """Dims by name; tensors, events and calls by their numbers in the plan; launches' counts."""

    name: str
    dims: tuple[Dim, ...]
    tensors: tuple[Tensor, ...]
    events: tuple[EventNames, ...]
    calls: tuple[CallNames, ...]
    counts: tuple[Count, ...]

    def check_sizes(self, dims: Mapping[str, int]) -> None:
        """An error if a launch has more of anything than 64 bits count."""
        self._sizes.check(dims)

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes(self.dims, self.tensors, self.counts)


def interface_of(known: Plan | Program | Interface) -> Interface:
    if isinstance(known, Interface):
        return known
    from ..codegen.counts import counts_of  # what an artifact is loaded by knows no plans

    program: Program = getattr(known, "program", known)  # type: ignore[arg-type]
    return Interface(
        program.name, program.dims, program.tensors,
        tuple(EventNames(e.name, e.shape) for e in known.events),
        tuple(CallNames(p.call.name, p.vars, p.call.place) for p in program.calls),
        tuple(Count(what, value) for what, value in counts_of(known)),
    )
