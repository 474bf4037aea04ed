"""Where a tile lies that the others of a cluster take from: in shared memory, at the begin of the
lines of x or, if there are none, of what is for temporaries, in the tasks that make and take it.
"""

from __future__ import annotations

from ...errors import NoRoom
from ...ir.clusters import Cluster, share
from ...ir.expr import Node, product
from ...ir.plan import Plan
from ...ir.program import PlacedCall
from ...ir.tensor import tile_shape
from ...ir.walk import bounds
from ...target import CudaTarget
from ..cpp.kernel import Flavour
from ..cpp.value import STORAGE
from .emitter import BlockDialect
from .handoff import HandoffEdges
from .room import PASSES, opens_beside, room, where_few
from .shared import LINES, SOME, SharedMemory


class HeldTiles(SharedMemory):
    def __init__(
        self, plan: Plan, target: CudaTarget, flavour: Flavour, out: BlockDialect,
        handoffs: HandoffEdges,
    ) -> None:
        super().__init__(plan, target, flavour, out, handoffs)
        self.handoffs = handoffs
        self.held_bytes = max(map(self.held, handoffs.clusters), default=0)

    def hold(self, p: PlacedCall) -> None:
        """A member's tile keeps its place from before it is made until all have taken of it."""
        for size, kind in self.held_by(p):
            self.out.line(f"worker.hold<{kind}>({self.expr(size)});")
        if self.handoffs.cluster_before(p.call) is not None:
            self.out.line("et::made_for_cluster(worker);")

    def held(self, c: Cluster, few: bool = False) -> int:
        """Bytes of a tile that is held for a cluster, at most, or where products have few columns.
        """
        size = room(self.program, self.program.placed(c.maker), [self.tile_of(c)])
        sizes = where_few(size, self.columns(), SOME) if few else [size]
        found = [bounds(x, lambda _: (None, None))[1] for x in sizes]
        return max(LINES[1] + 1 if n is None else n for n in found)

    def tile_of(self, c: Cluster) -> tuple[Node, str]:
        """Elements of what a member holds, over the maker's coordinates, and what they are."""
        tensor = self.program.tensor(c.tensor)
        region = self.program.call(c.maker).regions[c.made]
        return product(tile_shape(region, tensor)), STORAGE[tensor.dtype]

    def held_by(self, p: PlacedCall) -> list[tuple[Node, str]]:
        """The same for a call that makes or takes it."""
        before, after = self.handoffs.cluster_before(p.call), self.handoffs.cluster_after(p.call)
        found = [] if after is None else [self.tile_of(after)]
        if before is not None:
            taken = share(self.program, before)
            assert taken is not None
            found.append((taken.size, self.tile_of(before)[1]))
        return found

    def check_held(self) -> None:
        """What is held lies where lines do: there are as many in every launch, and none of them
        come any more."""
        for c in self.handoffs.clusters if self.wide else ():
            wide = [s for s in self.paged.get(c.maker, ()) if s.wide]
            ends = [opens_beside(wide, s) for s in wide]
            through = all(e is not None and s.columns <= PASSES[e]
                          for e, s in zip(ends, wide, strict=True))
            few = self.least_lines == LINES[1] or self.held(c, few=True) <= LINES[0]
            if not (through and few and self.held(c) <= LINES[1]):
                raise NoRoom(f"what {c.maker} makes for its cluster has no room among lines",
                             place=self.program.call(c.maker).place)
