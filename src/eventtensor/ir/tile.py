"""The tile IR, the meaning of a task body: ops over immutable tiles, and run-time loops.

Values have numbers; `%7` in an index expression is the 0-d integer value 7. The tracer applies all
shape rules and emits broadcasts, so back ends only evaluate. bf16 and f16 are storage: a loaded
tile is f32, and a store rounds. ir/ops.py and ir/elementwise.py have the tables of ops and
functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .expr import Node
from .tensor import DType, Point, Slice

REDUCE = ("sum", "max", "min")
SCAN = ("sum", "prod")

SubAxis = Point | Slice


@dataclass(frozen=True, slots=True)
class TileType:
    """A tile dtype (f32, i32, i64 or bool) and run-time extents."""

    dtype: DType
    shape: tuple[Node, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(s) for s in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Arg:
    """The whole region of read argument `arg`, with its elements at the start of the task."""

    arg: int


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A 0-d constant. Literals compare by text: nan equals nan, and -0.0 is not 0.0."""

    value: float | int | bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Index:
    """A 0-d integer from an index expression of coordinates, dims, loads and `%` values."""

    expr: Node


@dataclass(frozen=True, slots=True)
class Unary:
    """A function of ir/elementwise.py, element by element."""

    op: str
    x: int


@dataclass(frozen=True, slots=True)
class Binary:
    """Same shapes and dtypes on both sides; comparisons give bool. `//` and `%` floor."""

    op: str
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Where:
    cond: int
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Cast:
    """To `dtype`. bf16, f16 and u8 round (or wrap) to that storage and give its tile dtype back."""

    x: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Broadcast:
    """To the result shape, aligned at the last axis; axes of extent 1 repeat."""

    x: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """Over one axis, which disappears. A sum has 16 strided lanes in index order, then a tree."""

    op: str
    x: int
    axis: int


@dataclass(frozen=True, slots=True)
class MatMul:
    """(m, k) @ (k, n) in f32: k ascending, one fused multiply-add a step, from 0."""

    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Transpose:
    x: int
    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reshape:
    """To the result shape, row-major."""

    x: int


@dataclass(frozen=True, slots=True)
class Concat:
    xs: tuple[int, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class Iota:
    """0, 1, .. along the one axis of the result."""


@dataclass(frozen=True, slots=True)
class SliceOf:
    """A sub-tile; slices may overhang the upper end and are clipped (the type has the extents)."""

    x: int
    axes: tuple[SubAxis, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """A copy of x with the sub-tile at `axes` replaced by `value` (of the clipped shape)."""

    x: int
    axes: tuple[SubAxis, ...]
    value: int


@dataclass(frozen=True, slots=True)
class Scan:
    """Inclusive prefix sums or products along an axis, in index order; sums start at 0, products
    at 1."""

    op: str
    x: int
    axis: int


@dataclass(frozen=True, slots=True)
class Sort:
    """Along an axis in ascending order, equal elements by index, NaN last: the elements, or their
    i32 indices."""

    x: int
    axis: int
    indices: bool


@dataclass(frozen=True, slots=True)
class Gather:
    """Entries of x along `axis` picked by an integer tile; like numpy.take."""

    x: int
    index: int
    axis: int


@dataclass(frozen=True, slots=True)
class ArgMax:
    """i32 index of the largest value on the last axis; the lowest index wins ties."""

    x: int


@dataclass(frozen=True, slots=True)
class TopK:
    """The k largest on the last axis, descending, lowest index first among ties: the values, or
    their i32 indices."""

    x: int
    k: int
    indices: bool


@dataclass(frozen=True, slots=True)
class Histogram:
    """Element (r, b) of the i32 result is the sum of `weights[r]` where the index is b. Other
    indices are ignored. Sums wrap, so their order does not matter."""

    index: int
    weights: tuple[int, ...]


Op = (
    Arg | Literal | Index | Unary | Binary | Where | Cast | Broadcast | Reduce | MatMul | Transpose
    | Reshape | Concat | Iota | SliceOf | Update | Scan | Sort | Gather | ArgMax | TopK
    | Histogram
)


@dataclass(frozen=True, slots=True)
class Let:
    id: int
    op: Op
    type: TileType


@dataclass(frozen=True, slots=True)
class Carry:
    """A tile that a loop updates. `phi` is `init` in the first iteration and then the last `next`.
    `out` is the value after the loop, or `init` if there was no iteration."""

    phi: int
    init: int
    next: int
    out: int
    type: TileType


@dataclass(frozen=True, slots=True)
class For:
    """Run `body` for the 0-d i64 value `var` = 0 .. extent-1, in order."""

    var: int
    extent: Node
    carries: tuple[Carry, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Assigns a sub-tile of write argument `arg`. It takes effect when the task ends."""

    arg: int
    axes: tuple[SubAxis, ...]
    value: int


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Adds a tile to the whole region of accumulate argument `arg`."""

    arg: int
    value: int


Stmt = Let | For | Store | Accumulate


class ArgMode:
    """How a task uses an argument. The values are plain strings, which text shows."""

    read = "read"
    accumulate = "accumulate"
    write = "write"


@dataclass(frozen=True, slots=True)
class BodyArg:
    """`type.dtype` is the tile dtype, `storage` the dtype in memory."""

    name: str
    mode: str
    type: TileType
    storage: DType


@dataclass(frozen=True, slots=True)
class Body:
    """The arguments are reads, accumulates and writes, in this order. The tracer could not show
    the pairs of `equal_extents` equal by form, so the proof must."""

    args: tuple[BodyArg, ...]
    stmts: tuple[Stmt, ...]
    equal_extents: tuple[tuple[Node, Node], ...] = ()

    @property
    def read_names(self) -> tuple[str, ...]:
        """The names of the arguments that are read."""
        return tuple(a.name for a in self.args if a.mode == ArgMode.read)


def all_stmts(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in stmts:
        yield s
        if isinstance(s, For):
            yield from all_stmts(s.body)
