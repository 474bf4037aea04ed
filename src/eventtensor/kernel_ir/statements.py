"""Statements of a kernel: a closed union, `Stmt`. Control flow is structured, and every statement
is run by all threads of a role unless it stands in Elements or Elect.

Lowering never writes a Barrier: `kernel_passes/insert_barriers.py` does, from effects.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.expr import Node
from ..ir.program import PlacedCall
from .buffers import View
from .distributions import Distribution
from .scalar_values import Index, Scalar
from .scopes import Scope


@dataclass(frozen=True, slots=True)
class LetIndex:
    """From here on an index expression has a name."""

    name: str
    expr: Node


@dataclass(frozen=True, slots=True)
class Let:
    """A value of the own thread. One that `changes` may be assigned to."""

    name: str
    value: Scalar
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory for the buffer of a view. It is given back when the buffer's life is over."""

    view: View


@dataclass(frozen=True, slots=True)
class Bind:
    """A view of the region of a tensor. One that `reads` is not stored to."""

    view: View
    reads: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A view that is a part of another one gets its pointer."""

    view: View


@dataclass(frozen=True, slots=True)
class Check:
    """Reports an index outside 0..extent, of which the host is told; the launch goes on."""

    index: Node
    extent: Node


@dataclass(frozen=True, slots=True)
class Axis:
    var: str
    extent: Node


@dataclass(frozen=True, slots=True)
class Elements:
    """`body` for every index, in any order: threads share the indices by the distribution. Values
    of the axes in `serial` are one thread's, in order. The values in `first` are computed for all
    indices of a thread before the body begins; there they are known by name. `independent`: each
    element is touched at one index alone."""

    axes: tuple[Axis, ...]
    distribution: Distribution
    body: Block
    serial: frozenset[int] = frozenset()
    first: tuple[Let, ...] = ()
    independent: bool = True

    @property
    def spread(self) -> tuple[Axis, ...]:
        """The axes that threads share."""
        return tuple(a for k, a in enumerate(self.axes) if k not in self.serial)


@dataclass(frozen=True, slots=True)
class Store:
    view: View
    index: Index
    value: Scalar


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Adds to an element; `atomic` where others may at the same time."""

    view: View
    index: Index
    value: Scalar
    atomic: bool


@dataclass(frozen=True, slots=True)
class Histogram:
    """Row r of a view gets the sums of `weights[r]` by `index`, over `var` = 0 .. extent-1. All
    threads of a role make it, and put their adds in order themselves."""

    view: View
    var: str
    extent: Node
    index: Scalar
    weights: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class For:
    """In order. Buffers that an iteration allocates are gone at its end."""

    var: str
    extent: Node
    body: Block


@dataclass(frozen=True, slots=True)
class If:
    condition: Scalar
    body: Block


@dataclass(frozen=True, slots=True)
class Elect:
    """One thread of a scope runs the body: the first."""

    scope: Scope
    body: Block


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the scope meet, and see what each has written. `id` is one of 16."""

    scope: Scope
    id: int = 0


@dataclass(frozen=True, slots=True)
class Waits:
    """Text of the frame of a task: waits, with what is loaded ahead of them. `first` and `last` are
    the scopes at which it begins and ends converged. It binds `names` and `views`; what it writes
    to memory is complete in all threads of the role."""

    lines: tuple[str, ...]
    first: Scope
    last: Scope
    names: tuple[LetIndex, ...] = ()
    views: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseStages:
    """A task gives back the stages of the weight pipeline that it holds: a warp for itself, when it
    has read them."""


Stmt = (
    LetIndex
    | Let
    | Assign
    | Allocate
    | Bind
    | Point
    | Check
    | Elements
    | Store
    | Accumulate
    | Histogram
    | For
    | If
    | Elect
    | Barrier
    | Waits
    | ReleaseStages
)
Block = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """The body of the tasks of a call, as `threads` threads of a worker run it. It begins converged
    at the scope of its role."""

    call: PlacedCall = field(repr=False)
    threads: int
    body: Block

    @property
    def name(self) -> str:
        return self.call.call.name
