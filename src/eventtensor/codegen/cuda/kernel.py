"""The whole kernel as CUDA text. Tasks, grids, groups and the worker's program are those of the C++
back end, written for blocks; what is here is the frame around them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from ...errors import NoRoom
from ...ir.expr import Const, Max, Min, Node, add, maximum, product
from ...ir.plan import FEWEST_SLOTS, Plan, Stream, in_place
from ...ir.products import product_of
from ...ir.program import PlacedCall
from ...ir.walk import bounds, loads_of
from ...target import H200, CudaTarget
from ..cpp.body import BodyWriter
from ..cpp.hand import HandWriter
from ..cpp.kernel import Flavour, KernelWriter, coordinate_rank
from . import abi
from .body import StreamBody, opens_beside
from .emitter import BlockDialect
from .handoff import HandoffEdges
from .loader import LoaderWriter
from .maps import MappedTensor, Maps, PagedTensor
from .room import below, most_columns, room, where_few
from .threads import BRINGERS, LOADER, THREADS

DECLARED = 1024  # bytes of shared memory for what the kernel declares, besides its Args
NEAR = (8 * 1024, 96 * 1024)  # bytes of it for temporaries where a ring has the rest
SOME = 16  # columns for which temporaries are near
# Bytes for lines of x where products have many columns, by how many (device/cuda/ring.cuh), and
# those that the stream lends (device/cuda/lent.cuh).
LINES = (16 * 1024, 64 * 1024)
IDLE = 64 * 1024
PAGE = 16 * 1024
KERNEL = "et_kernel"
# Stand in the text until the bodies are written.
_SLOTS, _ROOM, _LANES = "@SLOTS@", "@ROOM@", "@LANES@"


@dataclass(frozen=True)
class CudaSource:
    """`cells` (counters) and `arena` (bytes for the temporaries of one worker, where shared memory
    does not hold them) are over dims; `zeroed` tensors start from 0 at every launch, `aligned` ones
    begin at multiples of 16 bytes, `maps` are of tensors that the host describes. A block has
    `threads`, and `shared_bytes` of dynamic shared memory."""

    text: str
    cells: Node
    arena: Node
    zeroed: tuple[str, ...]
    aligned: tuple[str, ...]
    maps: tuple[MappedTensor | PagedTensor, ...]
    rank: int
    threads: int
    shared_bytes: int


def generate(
    plan: Plan, target: CudaTarget = H200, debug: bool = False, trace: bool = False
) -> CudaSource:
    writer = BlockWriter(plan, target, Flavour(debug, trace))
    text = writer.text()
    return CudaSource(
        text, writer.cell_count(), writer.arena, tuple(t.name for t in writer.zeroed()),
        writer.aligned(), (*writer.maps.found, *writer.maps.pages), coordinate_rank(plan),
        writer.threads, writer.dynamic_bytes,
    )


def _by_call(streams: Iterable[Stream]) -> dict[str, tuple[Stream, ...]]:
    out: dict[str, tuple[Stream, ...]] = {}
    for s in streams:
        out[s.call] = (*out.get(s.call, ()), s)
    return out


def _says(p: PlacedCall, words: str) -> bool:
    """Of a hand-tuned body."""
    return any(h.target == "cuda" and words in h.source for h in p.call.hand_tuned)


def looks_ahead(p: PlacedCall) -> bool:
    """True for a hand-tuned body that begins with the next tile's data."""
    return _says(p, "et::tile_ahead(worker)")


def keeps(p: PlacedCall) -> bool:
    """True for a hand-tuned body that keeps something in shared memory from task to task."""
    return _says(p, "et::idle_memory(worker)")


class BlockWriter(KernelWriter):
    def __init__(self, plan: Plan, target: CudaTarget, flavour: Flavour) -> None:
        """A GPU without bulk copies has no stream: operands are then read where they lie."""
        self.target = target
        self.block_out = BlockDialect()
        self.handoffs = HandoffEdges(plan, target.has_bulk)
        super().__init__(plan, flavour, self.block_out, self.handoffs)
        self.maps = Maps()
        self.rooms: dict[str, Node] = {}  # bytes of temporaries of a task, by call
        found = plan.streams if target.has_bulk else in_place(plan.streams)
        self.paged = _by_call(found)
        self.streams = _by_call(s for s in found if s.loaded)

    @property
    def threads(self) -> int:
        """Of a block: those that run tasks, the loader's, and those that bring lines of x."""
        bringers = 32 * BRINGERS if self.wide else 0
        return THREADS + (LOADER if self.streams else 0) + bringers

    @property
    def dynamic_bytes(self) -> int:
        """Shared memory for the ring and for temporaries: what declarations leave."""
        words = len(self.program.dims) + len(self.program.tensors) + len(self.extra_cells())
        declared = DECLARED + 8 * words + 16 * len(self.plan.events)
        return self.target.shared_bytes - -(-declared // 1024) * 1024

    @property
    def page(self) -> int:
        """Bytes of a slot of the ring: the largest page."""
        paged = (s.page for every in self.streams.values() for s in every)
        return max([PAGE, *paged]) if self.streams else 0

    @property
    def ring_bytes(self) -> int:
        """Temporaries get what the largest task needs that fits, the ring the rest, with lines of x
        at its end. A task that does not fit goes on in device memory, unless it has a product with
        pages."""
        if not self.streams:
            return 0
        tops = {n: self.top(n, r) for n, r in self.rooms.items()}
        fit = (top for top in tops.values() if top is not None and top <= NEAR[1])
        large = (NEAR[1] for n, top in tops.items()
                 if n in self.paged and (top is None or top > NEAR[1]))
        found = (self.dynamic_bytes - max(NEAR[0], *fit, *large)) // self.page
        left = found - (-(-LINES[1] // self.page) if self.wide else 0)
        if left < max(FEWEST_SLOTS, -(-IDLE // self.page) if self.has_lent else 0):
            raise NoRoom(
                f"{self.dynamic_bytes} bytes of shared memory leave {left} pages for the stream",
                place=self.program.name,
            )
        return found * self.page

    def check_kept(self) -> None:
        """Where there is no ring, what tasks keep lies beside their temporaries."""
        for p in self.program.calls if not self.streams else ():
            needed = bounds(self.rooms[p.call.name], lambda _: (None, None))[1]
            if keeps(p) and (needed is None or needed + IDLE > self.near_bytes):
                raise NoRoom(f"{self.near_bytes} bytes of shared memory do not hold what its tasks "
                             f"keep ({IDLE})", place=p.call.place)

    @property
    def slots(self) -> int:
        """The most that a launch may have."""
        lines = LINES[0] if self.wide else 0
        return (self.ring_bytes - lines) // self.page if self.streams else 0

    @property
    def wide(self) -> bool:
        """True if products have many columns."""
        return any(s.wide for every in self.streams.values() for s in every)

    @property
    def has_lent(self) -> bool:
        return any(self.lends(p.call.name) for p in self.program.calls)

    def lends(self, call: str) -> bool:
        """True if the ring lends pages to a call, or to the group that it is in."""
        group = self.group_of(call)
        calls = [self.program.placed(call)] if group is None else \
            [p for p in self.program.calls if self.group_of(p.call.name) == group]
        return bool(self.streams) and any(keeps(p) for p in calls)

    def columns(self) -> str:
        """The most columns that a product of this launch has."""
        found: dict[Node, None] = {}
        for name, every in self.streams.items():
            p = self.program.placed(name)
            for s in every:
                product = product_of(p.call.body, s.arg) if s.wide else None
                if product is not None:
                    found[most_columns(self.program, p, product.columns)] = None
        plain = [e for e in found if not isinstance(e, Max | Min)]
        return self.expr(reduce(maximum, [e for e in found if e in plain or not below(e, plain)]))

    def top(self, call: str, size: Node) -> int | None:
        """The most bytes of a task that should be near: where a product may have many columns,
        those of some, less what they may have where lines were; with more columns temporaries are
        in device memory. Where run-time data says how many there are, they take what room there is:
        most tasks have few."""
        lines = 0
        streams = [s for s in self.paged.get(call, ()) if s.kind.of_product]
        for s in streams if all(s.wide for s in streams) else ():
            found = product_of(self.program.call(call).body, s.arg)
            if found is not None and loads_of(found.columns):
                return 0
            if found is not None:
                size = where_few(size, found.columns, SOME)
                lines = LINES[0] if s.loaded and opens_beside(streams, s) else 0
        most = bounds(size, lambda _: (None, None))[1]
        return None if most is None else max(0, most - lines)

    @property
    def arena(self) -> Node:
        found: Node = Const(0)
        for needed in self.rooms.values():
            found = maximum(found, needed)
        return found

    @property
    def near_bytes(self) -> int:
        return self.dynamic_bytes - self.ring_bytes

    def aligned(self) -> tuple[str, ...]:
        """Tensors that bulk copies read, or products and hand-tuned bodies by 16 bytes."""
        read = [self.program.call(s.call).regions[s.arg].tensor
                for every in self.paged.values() for s in every]
        read += [r.tensor for p in self.program.calls for r in p.call.reads
                 if any(h.target == "cuda" for h in p.call.hand_tuned)]
        return tuple(dict.fromkeys([*read, *(m.tensor for m in self.maps.found)]))

    def text(self) -> str:
        text = super().text()
        self.check_kept()
        known = {_SLOTS: self.slots, _ROOM: self.ring_bytes, _LANES: int(self.maps.lacking)}
        for mark, number in known.items():
            text = text.replace(mark, str(number))
        return text

    def includes(self) -> None:
        o = self.out
        o.line(f"#define ET_DEBUG {int(self.flavour.debug)}")
        o.line(f"#define ET_TRACE {int(self.flavour.trace)}")
        o.line(f"#define ET_THREADS {THREADS}")
        o.line(f"#define ET_STREAM {int(bool(self.streams))}")
        if self.streams:
            o.line(f"#define ET_PAGE {self.page}")
            o.line(f"#define ET_SLOTS {_SLOTS}")
            o.line(f"#define ET_ROOM {_ROOM}")
            o.line(f"#define ET_LENDS {int(self.has_lent)}")
            o.line(f"#define ET_HINTS {int(bool(self.plan.hints))}")
        o.line(f"#define ET_WIDE {int(self.wide)}")
        if self.wide:
            o.line(f"#define ET_BRINGERS {BRINGERS}")
            o.line(f"#define ET_LANES {_LANES}")
        o.extend(self.handoffs.defines())
        o.line('#include "cuda/std.cuh"')
        o.line()
        o.comment("---- shared with the host (codegen/cuda/abi.py) " + "-" * 43)
        o.extend(abi.structs(
            coordinate_rank(self.plan), len(self.program.dims), len(self.program.tensors)
        ))
        o.line()
        o.line('#include "claim.h"')
        if any(looks_ahead(p) for p in self.program.calls):
            o.line('#include "cuda/ahead.cuh"')
        o.extend(self.handoffs.includes())
        if self.streams:
            o.line('#include "cuda/stream.cuh"')
        elif self.paged:
            o.line('#include "cuda/wide.cuh"')

    def cell_count(self) -> Node:
        total: Node = Const(0)
        for e in self.counted_events():
            total = add(total, product(self.sync.event_shape(e)))
        for _, size in self.extra_cells():
            total = add(total, size)
        return total

    def body(self, p: PlacedCall) -> None:
        self.block_out.taken.clear()
        super().body(p)
        self.rooms[p.call.name] = room(self.program, p, self.block_out.taken)

    def body_writer(self, p: PlacedCall) -> BodyWriter | HandWriter:
        streams, tuned = self.paged.get(p.call.name), self.tuned(p)
        if tuned is not None:
            return HandWriter(self.block_out, self.expr, self.program, p, tuned,
                              p.call.name in self.streams)
        if streams is None:
            return super().body_writer(p)
        return StreamBody(self.block_out, self.expr, self.program, p, streams, self.maps)

    def enter(self, call: str, what: str) -> None:
        if self.lends(call):
            with self.out.block(""):
                self.out.line("const et::Lent lent(worker);")
                super().enter(call, what)
        else:
            super().enter(call, what)

    def claim(self, p: PlacedCall) -> str:
        if p.call.name in self.streams and self.is_ticket(p.call.name):
            return "et::ToldTiles(worker)"
        if self.is_ticket(p.call.name) and looks_ahead(p):
            return f"et::AheadTiles(worker, {self.ticket(p)})"
        return super().claim(p)

    def entry(self) -> None:
        o = self.out
        if self.streams:
            LoaderWriter(self, self.streams, self.lends, self.maps).write()
        self.bind()
        o.line("}  // namespace")
        o.line()
        if self.maps.count:
            o.extend(abi.maps(self.maps))
            o.line()
        described = ", const __grid_constant__ Maps maps" if self.maps.count else ""
        with o.block(
            f'extern "C" __global__ void __launch_bounds__({self.threads}, 1) {KERNEL}('
            "const __grid_constant__ Shared shared, const __grid_constant__ Launch launch"
            f"{described})"
        ):
            o.line("__shared__ int64_t board[2];")
            align = 1024 if self.wide else 128  # of what copies bring, swizzled or not
            o.line(f"extern __shared__ __align__({align}) char near[];")
            o.line("__shared__ Args args;")
            o.line("__shared__ int64_t cells;")
            with o.block("if (et::leads())"):
                o.line("args = bind(launch);")
                o.line("cells = lay_out(args);")
            if not self.streams:
                o.line("__syncthreads();")
            if self.streams:
                self.roles()
            else:
                o.line(f"et::Worker worker(shared, board, near, {self.near_bytes});")
            o.extend(self.handoffs.begin())
            o.line("et::launch_wait();")
            o.line("const bool begun = et::launch_begin(worker);")
            if self.streams:
                o.line("if (et::leads()) worker.pages.begin(begun ? worker.cells : nullptr);")
            with o.block("if (begun)"):
                o.line("run(worker, args);")
                o.line("et::launch_end(worker, cells);")
            if self.streams:
                o.line("et::sync();")
                o.line("if (et::leads()) worker.pages.stop();")

    def roles(self) -> None:
        """The ring, the loader's whole life, and the worker beside it."""
        o = self.out
        o.line("__shared__ et::Ring ring;")
        columns = f", {self.columns()}" if self.wide else ""
        o.line(f"if (et::leads()) et::ring_init(ring, near{columns});")
        o.line("__syncthreads();")
        if self.wide:
            with o.block(f"if (threadIdx.x >= ET_THREADS + {LOADER})"):
                maps = "maps.of" if self.maps.found else "nullptr"
                o.line(f"et::Bringer(ring, {maps}).run();")
                o.line("return;")
        with o.block("if (threadIdx.x >= ET_THREADS)"):
            pages = ", maps.pages" if self.maps.pages else ""
            o.line(f"et::Loader loader(shared, ring{pages});")
            o.line("feed(loader, args);")
            o.line("loader.finish();")
            o.line("return;")
        near = f"near + {self.ring_bytes}, {self.near_bytes}"
        o.line(f"et::Worker worker(shared, board, {near});")
        o.line("worker.pages = et::Pages(ring);")
