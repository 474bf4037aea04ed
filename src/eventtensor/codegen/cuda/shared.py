"""How the shared memory of a block is shared out: a pipeline of stages with activation tiles at its
end, and temporaries of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from ...errors import BadOption, NoRoom
from ...ir.expr import Const, Max, Min, Node, maximum
from ...ir.interval import numeric_bounds
from ...ir.plan import Plan, Stream
from ...ir.products import product_of
from ...ir.walk import loads_of
from ...targets.gemm import GEMM_WGMMA, required_features
from ...targets.target import CudaTarget, Feature
from ..cpp.dialect import Dialect
from ..cpp.kernel import Flavour, KernelWriter
from ..cpp.sync import Edges
from .constants import PERSISTENT_BYTES
from .room import below, most_columns, opens_beside, where_few
from .threads import WARPS

DECLARED = 1128  # bytes of shared memory for what the kernel declares, besides its Args
# Bytes for lines of x where products have many columns, by how many (smem_pipeline.cuh).
LINES = (16 * 1024, 64 * 1024)
PERSISTENT_BYTES_PER_WARP = PERSISTENT_BYTES // WARPS  # of what the stream lends, for each warp


def _by_call(streams: Iterable[Stream]) -> dict[str, tuple[Stream, ...]]:
    out: dict[str, tuple[Stream, ...]] = {}
    for s in streams:
        out[s.call] = (*out.get(s.call, ()), s)
    return out


def _least(e: Node) -> int:
    """Of what a size of a launch may be; 0 if that is not known."""
    return numeric_bounds(e)[0] or 0


def check_strategies(plan: Plan, target: CudaTarget) -> None:
    """Refuse a plan that was made for a GPU with other features."""
    for s in plan.streams:
        needed = required_features(s.strategy) | ({Feature.tma} if s.is_streamed else set())
        lacking = sorted(needed - target.capabilities.features)
        if lacking:
            raise BadOption(f"the plan of {s.call} needs {', '.join(lacking)}, which {target.name} "
                            "lacks", place=plan.program.name, hint="plan it for this GPU")


class SharedMemory(KernelWriter):
    """What is known when all bodies are written."""

    def __init__(
        self, plan: Plan, target: CudaTarget, flavour: Flavour, out: Dialect, edges: Edges
    ) -> None:
        super().__init__(plan, flavour, out, edges)
        self.target, self.costs = target, target.costs.shared_memory
        # Bytes of temporaries of a task, by call, and of those that it has before it may have them
        # where lines are, if it always may.
        self.rooms: dict[str, Node] = {}
        self.before: dict[str, Node] = {}
        check_strategies(plan, target)
        self.paged = _by_call(plan.streams)
        self.streams = _by_call(s for s in plan.streams if s.is_streamed)

    @property
    def declared_bytes(self) -> int:
        words = len(self.program.dims) + len(self.program.tensors) + len(self.extra_cells())
        return DECLARED + 8 * words + 16 * len(self.plan.events)

    @property
    def dynamic_bytes(self) -> int:
        """Shared memory for the pipeline and for temporaries: what declarations leave."""
        return self.target.shared_bytes - -(-self.declared_bytes // 1024) * 1024

    @property
    def page(self) -> int:
        """Bytes of a stage of the pipeline: the largest page."""
        paged = (s.stage_bytes for every in self.streams.values() for s in every)
        return max([self.costs.stage_bytes, *paged]) if self.streams else 0

    @property
    def ring_bytes(self) -> int:
        """Temporaries get what the largest task needs that fits. The pipeline gets the rest, with
        activation tiles at its end. A task that does not fit goes on in device memory, unless it
        has a product with pages."""
        if not self.streams:
            return 0
        costs, most = self.costs, self.costs.max_temporary_bytes
        tops = {n: self.top(n, r) for n, r in self.rooms.items()}
        fit = (top for top in tops.values() if top is not None and top <= most)
        large = (most for n, top in tops.items()
                 if n in self.paged and (top is None or top > most))
        least = costs.setup_bytes if self.wide else costs.min_temporary_bytes
        found = (self.dynamic_bytes - max(least, *fit, *large)) // self.page
        left = found - (-(-LINES[1] // self.page) if self.wide else 0)
        borrowed = -(-PERSISTENT_BYTES // self.page) if self.has_lent else 0
        if left < max(self.target.costs.stream.min_stages, borrowed):
            raise NoRoom(
                f"{self.dynamic_bytes} bytes of shared memory leave {left} pages for the stream",
                place=self.program.name,
            )
        return found * self.page

    def check_kept(self) -> None:
        """Where there is no ring, what tasks keep lies beside their temporaries."""
        for p in self.program.calls:
            if p.call.persistent_bytes_per_warp > PERSISTENT_BYTES_PER_WARP:
                raise NoRoom(
                    f"call '{p.call.name}' keeps {p.call.persistent_bytes_per_warp} bytes for each "
                    f"warp, of which there are {PERSISTENT_BYTES_PER_WARP}", place=p.call.place)
        for p in self.program.calls if not self.streams else ():
            needed = numeric_bounds(self.rooms[p.call.name])[1]
            keeps = p.call.persistent_bytes_per_warp > 0
            if keeps and (needed is None or needed + PERSISTENT_BYTES > self.near_bytes):
                raise NoRoom(f"{self.near_bytes} bytes of shared memory do not hold what its tasks "
                             f"keep ({PERSISTENT_BYTES})", place=p.call.place)

    @property
    def slots(self) -> int:
        """The most that a launch may have."""
        lines = LINES[0] if self.wide else 0
        return (self.ring_bytes - lines) // self.page if self.streams else 0

    @property
    def wide(self) -> bool:
        """True if products of many columns come through the pipeline."""
        return any(s.strategy == GEMM_WGMMA.name for every in self.streams.values() for s in every)

    @property
    def has_lent(self) -> bool:
        return any(self.lends(p.call.name) for p in self.program.calls)

    def lends(self, call: str) -> bool:
        """True if the pipeline lends stages to a call, or to the group that it is in."""
        group = self.group_of(call)
        calls = [self.program.placed(call)] if group is None else \
            [p for p in self.program.calls if self.group_of(p.call.name) == group]
        return bool(self.streams) and any(p.call.persistent_bytes_per_warp for p in calls)

    def columns(self) -> Node:
        """The most columns that a product of a launch has, over its dims."""
        found: dict[Node, None] = {}
        for name, every in self.streams.items():
            p = self.program.placed(name)
            for s in every:
                product = product_of(p.call.body, s.arg) if s.is_b_streamed else None
                if product is not None:
                    found[most_columns(self.program, p, product.columns)] = None
        plain = [e for e in found if not isinstance(e, Max | Min)]
        return reduce(maximum, [e for e in found if e in plain or not below(e, plain)])

    @property
    def least_lines(self) -> int:
        """Bytes that lines have in every launch."""
        some = self.costs.few_columns
        return LINES[1] if self.wide and _least(self.columns()) > some else LINES[0]

    def top(self, call: str, size: Node) -> int | None:
        """The most bytes of a task that should be near: where a product may have many columns,
        those of some; with more columns temporaries are in device memory. Less what there is where
        lines are, without such a product, or were. Where run-time data says how many columns there
        are, they take what room there is, since most tasks have few, and so they do where all
        launches have many."""
        lines, sizes = self.least_lines if self.without_lines(call) else 0, [size]
        some = self.costs.few_columns
        streams = [s for s in self.paged.get(call, ()) if s.kind.is_product]
        for s in streams if all(s.is_b_streamed for s in streams) else ():
            found = product_of(self.program.call(call).body, s.arg)
            if found is not None and (loads_of(found.columns) or _least(found.columns) > some):
                return 0
            if found is not None:
                sizes = [few for x in sizes for few in where_few(x, found.columns, some)]
                lines = self.least_lines if s.is_streamed and opens_beside(streams, s) else 0
        ends = [numeric_bounds(size)[1] for size in sizes]
        known = [end for end in ends if end is not None]
        return max(0, max(known) - lines) if len(known) == len(ends) else None

    def without_lines(self, call: str) -> bool:
        """True if tasks have the memory of lines that others bring: none come for them."""
        return self.wide and not any(s.is_b_streamed for s in self.paged.get(call, ()))

    def is_near(self, call: str) -> bool:
        """True if no task of it goes on in device memory."""
        lines = self.least_lines if call in self.before else 0
        found = [numeric_bounds(e)[1]
                 for e in (self.rooms[call], self.before.get(call, Const(0)))]
        room = (self.near_bytes + lines, self.near_bytes)
        return all(n is not None and n <= most for n, most in zip(found, room, strict=True))

    @property
    def arena(self) -> Node:
        found: Node = Const(0)
        for needed in self.rooms.values():
            found = maximum(found, needed)
        return found

    @property
    def near_bytes(self) -> int:
        return self.dynamic_bytes - self.ring_bytes
