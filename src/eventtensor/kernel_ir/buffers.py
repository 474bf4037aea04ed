"""Buffers, and views of them: an index space with a place for every index.

A view is declared, or derived from another one by a rule of this module. The verifier repeats the
rule, so a derived view touches nothing that its base does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from ..ir.expr import Const, Node, add, product
from ..ir.tensor import DType, Region, Role, Tensor
from .scopes import Space


@dataclass(frozen=True, slots=True)
class Buffer:
    """Elements are stored as `dtype`. `iteration` is the variable of the loop of which an iteration
    ends the buffer's life; without one it lives as long as its task, in device memory as long as
    the launch. `owner` is the rank in whose memory it lies, if that is not the own one."""

    name: str
    space: Space
    dtype: DType
    shape: tuple[Node, ...]
    iteration: str | None = None
    owner: Node | None = None


class Form(Enum):
    """What the name of a view stands for: a pointer, a descriptor with extents and strides, or a
    place to which elements go as words that carry flags."""

    pointer = "pointer"
    descriptor = "descriptor"
    tagged = "tagged"


@dataclass(frozen=True, slots=True)
class Permuted:
    base: View
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """Aligned at the last axis; axes of extent 1 repeat."""

    base: View


@dataclass(frozen=True, slots=True)
class Reshaped:
    """Of a dense view, row-major."""

    base: View


@dataclass(frozen=True, slots=True)
class Part:
    """From `starts` on. Axes in `dropped` have no extent left. `clamped` starts are kept inside the
    base by the statement that makes the view; with `checked` it reports those outside."""

    base: View
    starts: tuple[Node, ...]
    dropped: frozenset[int] = frozenset()
    clamped: frozenset[int] = frozenset()
    checked: bool = False


Origin = Permuted | Repeated | Reshaped | Part


@dataclass(frozen=True, slots=True)
class Table:
    """Offsets of gathered rows, in elements: row i has entry i + start of a buffer."""

    name: str
    start: Node


@dataclass(frozen=True, slots=True)
class View:
    """Index (i, j) lies `i * strides[0] + j * strides[1]` elements behind the first one; an axis
    with a table of offsets has those instead. `region` is the part of a tensor that the plan has
    proved to be inside."""

    name: str
    buffer: Buffer
    extents: tuple[Node, ...]
    strides: tuple[Node, ...]
    tables: tuple[Table | None, ...] = ()
    form: Form = Form.pointer
    region: Region | None = None
    origin: Origin | None = None

    def table(self, axis: int) -> Table | None:
        return self.tables[axis] if self.tables else None

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for views in which an index is the same element."""
        return self.name, self.strides, self.tables

    @property
    def dense(self) -> bool:
        """True for a whole buffer of the worker's own, row-major."""
        return self.region is None and (self.origin is None or isinstance(self.origin, Reshaped))


def as_tensor(buffer: Buffer) -> Tensor:
    """A buffer of device memory, as the program declares it but for its role."""
    return Tensor(buffer.name, Role.scratch, buffer.shape, buffer.dtype)


def row_major(extents: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(product(extents[k + 1 :]) for k in range(len(extents)))


def tile(name: str, buffer: Buffer) -> View:
    """A whole buffer, dense."""
    return View(name, buffer, buffer.shape, row_major(buffer.shape))


def permuted(base: View, axes: tuple[int, ...]) -> View:
    tables = tuple(base.table(k) for k in axes) if base.tables else ()
    return replace(
        base,
        extents=tuple(base.extents[k] for k in axes),
        strides=tuple(base.strides[k] for k in axes),
        tables=tables,
        origin=Permuted(base, axes),
    )


def repeated(base: View, extents: tuple[Node, ...]) -> View:
    assert not base.tables
    skip = len(extents) - len(base.extents)
    kept = zip(base.extents, base.strides, strict=True)
    strides = (*(Const(0),) * skip, *(Const(0) if n == Const(1) else s for n, s in kept))
    return replace(base, extents=extents, strides=strides, origin=Repeated(base))


def reshaped(base: View, extents: tuple[Node, ...]) -> View:
    assert base.dense
    return replace(base, extents=extents, strides=row_major(extents), origin=Reshaped(base))


def part(base: View, name: str, origin: Part, extents: tuple[Node, ...]) -> View:
    """`extents` are those of the axes that are left."""
    kept = [k for k in range(len(base.extents)) if k not in origin.dropped]
    tables = tuple(_moved(base.table(k), origin.starts[k]) for k in kept)
    form = base.form if name == base.name else Form.pointer
    return replace(
        base,
        name=name,
        extents=extents,
        strides=tuple(base.strides[k] for k in kept),
        tables=tables if any(x is not None for x in tables) else (),
        form=form,
        origin=origin,
    )


def _moved(table: Table | None, start: Node) -> Table | None:
    return None if table is None else Table(table.name, add(table.start, start))
