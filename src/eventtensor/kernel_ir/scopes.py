"""Who takes part in something, over whom a value is the same, and where memory lies."""

from __future__ import annotations

from enum import Enum, IntEnum


class Scope(IntEnum):
    """Threads that can converge, from few to many. A role is a set of warps of a block that run one
    program: on a CPU it has one thread."""

    thread = 0
    half_warp = 1
    warp = 2
    warpgroup = 3
    role = 4
    block = 5
    cluster = 6
    device = 7
    system = 8


class Varies(IntEnum):
    """The least set of threads over which an expression has one value: all of a launch, those of a
    role, those of a warp, or a thread alone."""

    launch = 0
    role = 1
    warp = 2
    thread = 3

    @property
    def same_over(self) -> Scope:
        """The widest scope with one value."""
        return (Scope.device, Scope.role, Scope.warp, Scope.thread)[self]


class Space(Enum):
    """`arena`: the temporaries of a worker, in shared memory as far as that holds them."""

    device = "device"
    cluster = "cluster"
    shared = "shared"
    register = "register"
    arena = "arena"


class Mode(Enum):
    """What an access does. Atomic adds of several threads to one element need no order."""

    read = "read"
    write = "write"
    add = "add"
