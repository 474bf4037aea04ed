"""What goes from call to call within a cluster of workers, who see each other's shared memory.

Tiles that differ in the last coordinate alone are made by the members of a cluster, each by one;
the tiles after them, of an equal grid, take something of each. So what a member has made stays
where it is, and the tile after it follows at once, on the same worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .expr import Const, Node, Var, add, mul, product
from .plan import HandoffKind, Plan
from .program import Call, Program
from .tensor import Point, Region, Slice, tile_shape
from .walk import free_vars, substitute

SIZES = (2, 4, 8)  # workers of a cluster
_MEMBER = Var("#member")


@dataclass(frozen=True)
class Share:
    """What a task of the taker reads of the makers' tiles: axis `axis` of its tile goes along the
    members, the others along a member's tile, from element `offset` on, so far apart (`strides`; of
    the members 0). `size`: elements of such a tile. All are over coordinates of the taker."""

    size: Node
    axis: int
    offset: Node
    strides: tuple[Node, ...]


@dataclass(frozen=True)
class Cluster:
    """`arg` and `made` are the arguments of taker and maker that are the tensor."""

    tensor: str
    maker: str
    taker: str
    made: int
    arg: int
    size: int


def clusters(plan: Plan) -> tuple[Cluster, ...]:
    """Those that the hand-offs of a plan ask for."""
    return tuple(cluster_of(plan.program, h.tensors[0], h.call)
                 for h in plan.handoffs if h.kind is HandoffKind.cluster)


def cluster_of(program: Program, tensor: str, taker: str) -> Cluster:
    """Of a tensor that one call writes, and one reads, once each."""
    maker = next(p.call for p in program.calls if any(r.tensor == tensor for r in p.call.writes))
    made, arg = (next(k for k, r in enumerate(c.regions) if r.tensor == tensor)
                 for c in (maker, program.call(taker)))
    last = maker.grid[-1].extent
    assert isinstance(last, Const)
    return Cluster(tensor, maker.name, taker, made, arg, last.value)


def share(program: Program, c: Cluster) -> Share | None:
    """None if the taker reads what does not lie so, by the form of the regions."""
    maker, taker = program.call(c.maker), program.call(c.taker)
    mine, theirs = _in_terms_of(taker, maker, maker.regions[c.made]), taker.regions[c.arg]
    tile = tile_shape(mine, program.tensor(c.tensor))
    offset: Node = Const(0)
    strides: list[Node] = []
    axis = -1
    for k, (a, b) in enumerate(zip(mine.axes, theirs.axes, strict=True)):
        if a == Point(_MEMBER):
            if b != Slice(Const(0), Const(c.size)) or axis >= 0:
                return None
            axis = len(strides)
            strides.append(Const(0))
            continue
        if isinstance(a, Point):
            if a != b:
                return None
            continue
        if not isinstance(a, Slice) or not isinstance(b, Point | Slice):
            return None
        if _MEMBER.name in free_vars(a.start, a.stop):
            return None
        inner = sum(isinstance(x, Slice) for x in mine.axes[: k + 1])
        step = product(tile[inner:])
        first = b.index if isinstance(b, Point) else b.start
        offset = add(offset, mul(add(first, mul(a.start, Const(-1))), step))
        if isinstance(b, Slice):
            strides.append(step)
    return Share(product(tile), axis, offset, tuple(strides)) if axis >= 0 else None


def _in_terms_of(taker: Call, maker: Call, region: Region) -> Region:
    """The maker's region at the taker's coordinates, but for the last."""
    names: dict[str, Node] = {a.var: Var(b.var) for a, b in
                              zip(maker.grid, taker.grid, strict=True)}
    names[maker.grid[-1].var] = _MEMBER

    def of(axis: Point | Slice) -> Point | Slice:
        if isinstance(axis, Point):
            return Point(substitute(axis.index, names))
        return replace(axis, start=substitute(axis.start, names),
                       stop=substitute(axis.stop, names))

    return Region(region.tensor, tuple(of(a) if isinstance(a, Point | Slice) else a
                                       for a in region.axes))

