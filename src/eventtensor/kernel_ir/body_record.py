"""What the writer of a body returns. The frame of a kernel asks nothing else of a writer: not what
it has left in an emitter, and not what its lines look like.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..ir.expr import Node
from ..ir.plan import Stream
from .statements import Function


class OpaqueReason(Enum):
    """Why a body is text."""

    product = "a product of matrices"
    custom = "a custom body"
    statement = "a statement without a node"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A body of which nothing is known but its text: it touches all memory, and a role that runs it
    converges before and behind it."""

    reason: OpaqueReason


@dataclass(frozen=True, slots=True)
class ArenaDemand:
    """What a task takes of its worker's arena: extents and C++ types of elements. `early` is what
    it has before it may take the memory of a product's columns too, if it may at all.
    `in_headers`: a device function that the body calls takes of the arena as well."""

    tiles: tuple[tuple[Node, str], ...] = ()
    early: tuple[tuple[Node, str], ...] | None = None
    in_headers: bool = False


@dataclass(frozen=True, slots=True)
class PipeTerm:
    """What a body takes of the weight pipeline, in order. Runs of products that begin with the
    arguments in `joined` share their stages."""

    takes: tuple[Stream, ...] = ()
    joined: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BodyRecord:
    """`lines`: the functions of the body as text. `tensor_maps`: tensors that this body is the
    first to copy by maps. `ends_converged`: all threads of the worker have met behind the last
    access of the body. `fallible`: the launch may be given up in it, so that it tells whether it
    goes on."""

    call: str
    code: Opaque | Function
    lines: tuple[str, ...]
    arena: ArenaDemand
    tensor_maps: tuple[str, ...]
    pipe: PipeTerm
    ends_converged: bool
    fallible: bool
