"""The whole kernel as CUDA text. Tasks, grids, groups and the worker's program are those of the C++
back end, written for blocks; what is here is the frame around them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.cpp_body import CppBody
from ...ir.cuda_body import CudaBody
from ...ir.expr import Const, Load, Node, add, product
from ...ir.plan import Plan, StreamKind, has_successive_tiles
from ...ir.program import PlacedCall
from ...kernel_ir.body_record import ArenaDemand, BodyRecord, PipeTerm
from ...kernel_ir.statements import Function
from ...render.body_printer import ThreadText
from ...render.cuda import ThreadsOfBlock
from ...targets.devices import DEFAULT_DEVICE
from ...targets.target import CudaTarget, Feature
from ..cpp.body import BodyWriter
from ..cpp.frame import KnownExpr
from ..cpp.hand import HandWriter
from ..cpp.kernel import Flavour, coordinate_rank
from . import abi
from .body import StreamBody
from .constants import MAX_CLAIMED_TILES
from .emitter import BlockDialect
from .handoff import HandoffEdges
from .loader import LoaderWriter
from .maps import MappedTensor, Maps, PagedTensor
from .room import room
from .shared import SharedMemory
from .tables import Tables
from .threads import BRINGERS, LOADER, MESSENGER, THREADS

KERNEL = "et_kernel"
MESSAGES = 136  # bytes of et::NotifierWarp
# Stand in the text until the bodies are written.
_SLOTS, _ROOM, _LANES, _FAR = "@SLOTS@", "@ROOM@", "@LANES@", "@FAR@"


def _far_of(call: str) -> str:
    """The same for a call: whether its temporaries may lie in device memory, if others' do not, or
    that they never do."""
    return f"@FAR {call}@"


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
    plan: Plan, target: CudaTarget = DEFAULT_DEVICE, debug: bool = False, trace: bool = False
) -> CudaSource:
    writer = BlockWriter(plan, target, Flavour(debug, trace))
    text = writer.text()
    return CudaSource(
        text, writer.cell_count(), writer.arena, tuple(t.name for t in writer.zeroed()),
        writer.aligned(), (*writer.maps.found, *writer.maps.pages), coordinate_rank(plan),
        writer.threads, writer.dynamic_bytes,
    )


class BlockWriter(SharedMemory):
    def __init__(self, plan: Plan, target: CudaTarget, flavour: Flavour) -> None:
        self.block_out = BlockDialect()
        self.handoffs = HandoffEdges(plan, target)
        super().__init__(plan, target, flavour, self.block_out, self.handoffs)
        self.maps = Maps()
        self.tables = Tables(plan, self.streams)
        self.joined: set[int] = set()  # first arguments of the runs of a body that share stages

    @property
    def threads(self) -> int:
        """Of a block: those that run tasks, the producer warp, the activation producers and the
        notifier warp."""
        return self.before_messenger + (MESSENGER if self.has_messenger else 0)

    @property
    def before_messenger(self) -> int:
        bringers = 32 * BRINGERS if self.wide else 0
        return THREADS + (LOADER if self.streams else 0) + bringers

    @property
    def most_told(self) -> int:
        """Numbers that are forwarded with a tile."""
        return max((len(self.tables.told(p)) for p in self.program.calls if self.is_told(p)),
                   default=0)

    @property
    def declared_bytes(self) -> int:
        messages = MESSAGES if self.has_messenger else 0
        return super().declared_bytes + MAX_CLAIMED_TILES * 8 * self.most_told + messages

    @property
    def has_messenger(self) -> bool:
        return any(self.sends(p) for p in self.program.calls)

    def sends(self, p: PlacedCall) -> bool:
        """True if a worker claims tiles of a grid one after the other, and their products are of
        many columns: the messenger notifies, and the next tile begins. (Not in debug builds, where
        cells are counted as soon as the tasks are over.)"""
        return (
            self.is_told(p)
            and any(s.is_b_streamed for s in self.streams[p.call.name])
            and not self.flavour.debug
            and bool(self.edges.notifies(self.plan.call(p.call.name)))
        )

    def is_told(self, p: PlacedCall) -> bool:
        """True if the producer warp claims the tiles of a grid."""
        return p.call.name in self.streams and self.is_ticket(p.call.name)

    def how_to_notify(self, p: PlacedCall) -> str:
        return "notify_async" if self.sends(p) else super().how_to_notify(p)

    def aligned(self) -> tuple[str, ...]:
        """Tensors that bulk copies read, or products and hand-tuned bodies by 16 bytes."""
        read = [self.program.call(s.call).regions[s.arg].tensor
                for every in self.paged.values() for s in every]
        read += [r.tensor for p in self.program.calls for r in p.call.reads
                 if p.call.cuda_body is not None]
        mapped = [x for b in self.bodies.values() for x in b.tensor_maps]
        return tuple(dict.fromkeys([*read, *mapped]))

    def text(self) -> str:
        text = super().text()
        self.check_kept()
        far = any(not self.is_near(b.call) for b in self.bodies.values() if b.arena.in_headers)
        known = {_SLOTS: self.slots, _ROOM: self.ring_bytes, _LANES: int(self.maps.lacking),
                 _FAR: int(far)}
        for mark, number in known.items():
            text = text.replace(mark, str(number))
        for name in self.rooms:
            near = self.is_near(name)
            text = text.replace(_far_of(name), "" if near != far else f", {str(not near).lower()}")
        return text

    def includes(self) -> None:
        o = self.out
        o.line(f"#define ET_DEBUG {int(self.flavour.debug)}")
        o.line(f"#define ET_TRACE {int(self.flavour.trace)}")
        o.line(f"#define ET_THREADS {THREADS}")
        dependent = self.target.supports(Feature.dependent_launch)
        o.line(f"#define ET_DEPENDENT_LAUNCH {int(dependent)}")
        o.line(f"#define ET_STREAM {int(bool(self.streams))}")
        o.line(f"#define ET_FAR {_FAR}")
        if self.streams:
            o.line(f"#define ET_STAGE_BYTES {self.page}")
            o.line(f"#define ET_STAGES {_SLOTS}")
            o.line(f"#define ET_PIPELINE_BYTES {_ROOM}")
            o.line(f"#define ET_LENDS_STAGES {int(self.has_lent)}")
            o.line(f"#define ET_TILE_VALUES {self.most_told}")
        o.line(f"#define ET_WIDE {int(self.wide)}")
        if self.wide:
            o.line(f"#define ET_ACTIVATION_WARPS {BRINGERS}")
            o.line(f"#define ET_COPIES_BY_LANES {_LANES}")
        o.extend(self.handoffs.defines())
        o.line('#include "cuda/std.cuh"')
        o.line()
        o.comment("---- shared with the host (codegen/cuda/abi.py) " + "-" * 43)
        o.extend(abi.structs(
            coordinate_rank(self.plan), len(self.program.dims), len(self.program.tensors)
        ))
        o.line()
        o.line('#include "claim.h"')
        if any(p.call.prefetches_next_tile for p in self.program.calls):
            o.line('#include "cuda/roles/ticket_prefetch.cuh"')
        o.extend(self.handoffs.includes())
        if self.streams:
            o.line('#include "cuda/roles/operand_source.cuh"')
            if self.has_messenger:
                o.line('#include "cuda/roles/notifier.cuh"')
        if not self.wide and any(s.is_b_streamed for every in self.paged.values() for s in every):
            o.line('#include "cuda/mma/gemm_wide.cuh"')
        elif self.paged and not self.streams:
            o.line('#include "cuda/mma/gemm_skinny.cuh"')

    def cell_count(self) -> Node:
        total: Node = Const(0)
        for e in self.counted_events():
            total = add(total, product(self.sync.event_shape(e)))
        for _, size in self.extra_cells():
            total = add(total, size)
        return total

    def told(self, p: PlacedCall) -> dict[Load, str]:
        """What a task knows with its tile. (In debug builds it looks, and checks, for itself.)"""
        if not self.is_told(p) or self.flavour.debug:
            return {}
        return {x: f"worker.pipeline.tile_value({k})" for k, x in enumerate(self.tables.told(p))}

    def body(self, p: PlacedCall) -> BodyRecord:
        out, name, maps = self.block_out, p.call.name, len(self.maps.found)
        out.taken.clear()
        out.inner, out.far = False, _far_of(name)
        out.before = [] if self.without_lines(name) else None
        self.joined.clear()
        known = KnownExpr(self.program, self.flavour.debug, self.expr.flagged, self.told(p))
        before, self.sync = self.sync, replace(self.sync, expr=known)
        record = super().body(p)
        self.sync = before
        early = None if out.before is None else tuple(out.before)
        arena = ArenaDemand((*out.taken, *record.arena.tiles), early, out.inner)
        self.rooms[name] = room(self.program, p, arena.tiles)
        if arena.early is not None:
            self.before[name] = room(self.program, p, arena.early)
        mapped = tuple(m.tensor for m in self.maps.found[maps:])
        pipe = PipeTerm(self.paged.get(name, ()), frozenset(self.joined))
        return replace(record, arena=arena, tensor_maps=mapped, pipe=pipe)

    def is_lowered(self, p: PlacedCall) -> bool:
        held = all(s.kind is StreamKind.whole for s in self.paged.get(p.call.name, ()))
        return held and super().is_lowered(p)

    def threads_text(self, f: Function) -> ThreadText:
        return ThreadsOfBlock(self.block_out.far)

    def prepare(self, p: PlacedCall, writer: BodyWriter | HandWriter) -> None:
        if self.without_lines(p.call.name):
            self.out.line("worker.arena.open_beside(worker.pipeline.activation_bytes());")
        super().prepare(p, writer)

    def body_writer(self, p: PlacedCall) -> BodyWriter | HandWriter:
        streams, custom = self.paged.get(p.call.name), p.call.cuda_body
        if custom is not None:
            return HandWriter(
                self.block_out,
                self.expr,
                self.program,
                p,
                custom.source,
                custom.headers,
                p.call.name in self.streams,
                custom.waits_inside,
                custom.scratch,
            )
        if streams is None:
            return super().body_writer(p)
        writer = StreamBody(
            self.block_out,
            self.expr,
            self.program,
            p,
            streams,
            self.maps,
            self.joined,
            has_successive_tiles(self.plan, p, self.target.multiprocessors),
            self.target.costs.stream,
        )
        writer.known.update(self.told(p))
        return writer

    def custom_body(self, p: PlacedCall) -> CppBody | CudaBody | None:
        return p.call.cuda_body

    def enter(self, call: str, what: str) -> None:
        if self.lends(call):
            with self.out.block(""):
                self.out.line("const et::BorrowedStages lent(worker);")
                super().enter(call, what)
        else:
            super().enter(call, what)

    def claim(self, p: PlacedCall) -> str:
        if self.is_told(p):
            return "et::ForwardedTiles(worker)"
        if self.is_ticket(p.call.name) and p.call.prefetches_next_tile:
            return f"et::PrefetchedTickets(worker, {self.ticket(p)})"
        return super().claim(p)

    def entry(self) -> None:
        o = self.out
        if self.streams:
            joined = {(b.call, k) for b in self.bodies.values() for k in b.pipe.joined}
            LoaderWriter(
                self, self.tables, self.lends, self.maps, joined, self.target.costs.stream
            ).write()
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
            o.line("__shared__ int64_t broadcast_slot[2];")
            align = 1024 if self.wide else 128  # of what copies bring, swizzled or not
            o.line(f"extern __shared__ __align__({align}) char near[];")
            o.line("__shared__ Args args;")
            o.line("__shared__ int64_t cells;")
            with o.block("if (et::is_leader())"):
                o.line("args = bind(launch);")
                o.line("cells = lay_out(args);")
            if not self.streams:
                o.line("__syncthreads();")
            if self.streams:
                self.roles()
            else:
                o.line(f"et::Worker worker(shared, broadcast_slot, near, {self.near_bytes});")
            o.extend(self.handoffs.begin())
            o.line("et::launch_wait();")
            o.line("const bool begun = et::launch_begin(worker);")
            if self.streams:
                o.line("if (et::is_leader())")
                o.line("  worker.pipeline.begin(begun ? worker.cells : nullptr, worker.epoch);")
            with o.block("if (begun)"):
                o.line("run(worker, args);")
                o.line("et::launch_end(worker, cells);")
            if self.streams:
                o.line("et::sync();")
                o.line("if (et::is_leader()) worker.pipeline.stop();")
            if self.has_messenger:
                o.line("if (et::is_leader()) et::notifier().send(nullptr);")

    def roles(self) -> None:
        """The pipeline, the producer warp's whole life, and the worker beside it."""
        o = self.out
        o.line("__shared__ et::SmemPipeline ring;")
        columns = f", {self.expr(self.columns())}" if self.wide else ""
        if self.has_messenger:
            o.line("if (et::is_leader()) et::notifier().init();")
        o.line(f"if (et::is_leader()) et::init_pipeline(ring, near{columns});")
        o.line("__syncthreads();")
        if self.has_messenger:
            with o.block(f"if (threadIdx.x >= {self.before_messenger})"):
                o.line(f"if (threadIdx.x == {self.before_messenger}) et::notifier().run();")
                o.line("return;")
        if self.wide:
            with o.block(f"if (threadIdx.x >= ET_THREADS + {LOADER})"):
                maps = "maps.of" if self.maps.found else "nullptr"
                o.line(f"et::ActivationProducer(ring, {maps}).run();")
                o.line("return;")
        with o.block("if (threadIdx.x >= ET_THREADS)"):
            pages = ", maps.pages" if self.maps.pages else ""
            o.line(f"et::ProducerWarp loader(shared, ring{pages});")
            o.line("feed(loader, args);")
            o.line("loader.finish();")
            o.line("return;")
        near = f"near + {self.ring_bytes}, {self.near_bytes}"
        o.line(f"et::Worker worker(shared, broadcast_slot, {near});")
        o.line("worker.pipeline = et::PipelineConsumer(ring);")
