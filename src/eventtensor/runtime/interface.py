"""The interface of a kernel: its arguments, and the names that reports use.

It is made from a plan, or read from an artifact. Nothing of the plan is imported here, because an
artifact has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..ir.expr import Dim, Node
from ..ir.tensor import Tensor
from .overflow_check import Count, OverflowCheck

if TYPE_CHECKING:
    from ..ir.plan import Plan
    from ..ir.program import Program


@dataclass(frozen=True, slots=True)
class CallNames:
    """A call: the coordinates of its tasks, those of loops first, and its place in the user's
    code."""

    name: str
    vars: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class EventNames:
    """An event tensor, as reports name its cells."""

    name: str
    shape: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BufferOffset:
    """The byte offset of a scratch tensor, over dims."""

    tensor: str
    offset: Node


@dataclass(frozen=True)
class Interface:
    """Dims by name; tensors, events and calls by their numbers in the plan; counts of a launch."""

    name: str
    dims: tuple[Dim, ...]
    tensors: tuple[Tensor, ...]
    events: tuple[EventNames, ...]
    calls: tuple[CallNames, ...]
    counts: tuple[Count, ...]

    def check_sizes(self, dims: Mapping[str, int]) -> None:
        """Raise if a size of a launch overflows 64 bits."""
        self._sizes.check(dims)

    @cached_property
    def _sizes(self) -> OverflowCheck:
        return OverflowCheck(self.dims, self.tensors, self.counts)


def interface_of(known: Plan | Program | Interface) -> Interface:
    if isinstance(known, Interface):
        return known
    from ..codegen.counts import counts_of  # an artifact is loaded without plans

    program: Program = getattr(known, "program", known)  # type: ignore[arg-type]
    return Interface(
        program.name, program.dims, program.tensors,
        tuple(EventNames(e.name, e.shape) for e in known.events),
        tuple(CallNames(p.call.name, p.vars, p.call.place) for p in program.calls),
        tuple(Count(what, value) for what, value in counts_of(known)),
    )
