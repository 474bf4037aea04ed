"""Which operands the producer warp loads ahead of the waits: reads that no event guards.

Pre: a proved plan. Post: every stream reads memory that no task of the launch writes before, in
rows that a bulk copy can take. Dims and coordinates decide where; what a product uses up may also
lie where run-time data says, if waits of one cell for the whole grid settle it, which the producer
does as well. Page sizes and caps are those of the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ..analysis.deps import dependences
from ..ir.availability import DataAvailability
from ..ir.cuda_body import Producer
from ..ir.expr import Const, Node, add, mul, product
from ..ir.interval import Bounds, coordinate_bounds, counter_bounds, numeric_bounds, within
from ..ir.layout import Layout, bulk_aligned, layout_of
from ..ir.loop_operands import loop_operand
from ..ir.plan import (
    Plan,
    ScheduleKind,
    Stream,
    StreamKind,
    Wait,
    has_successive_tiles,
    without_producer,
)
from ..ir.products import PANEL, narrow_dtype, product_of
from ..ir.program import PlacedCall, Program
from ..ir.tensor import Point, Region, Role, Tensor, region_exprs, tile_shape
from ..ir.walk import free_vars, loads_of
from ..targets.cost_model import StreamCosts
from ..targets.gemm import select_gemm
from ..targets.target import CudaTarget, Feature

_STEP = 64  # bytes of a row that a warp takes at once in a product


def streams(plan: Plan, on: bool, debug: bool, target: CudaTarget) -> tuple[Stream, ...]:
    """All streams, in the order in which a task uses them up: held pages first. Where the stream is
    off, or tasks come from a queue, the producer cannot be ahead; in debug it must not be ahead of
    the checks of run-time data. Products then read in place."""
    program = plan.program
    guarded = {(d.sink.call.name, d.tensor) for d in dependences(program).deps if d.kind == "raw"}
    out: list[Stream] = []
    for call in plan.calls:
        settled = DataAvailability(plan, program.placed(call.call), call.header)
        known = _Known(settled, call.waits, target)
        found = _of_call(program, known, guarded, bool(call.waits or call.header))
        by_data = any(_by_data(known.placed.call.reads[s.arg]) for s in found)
        by_data = by_data or any(s.kind is StreamKind.hand for s in found)
        here = not on or call.schedule.kind is ScheduleKind.push or (debug and by_data)
        out += _by_strategy(found, not here, target)
    return tuple(out)


def _by_strategy(found: list[Stream], may_stream: bool, target: CudaTarget) -> list[Stream]:
    """The same with the way to multiply of each product. A call streams all its operands or none,
    so one product without a way that streams keeps the call in place."""
    products = [s for s in found if s.kind.is_product]
    streamed = may_stream and target.supports(Feature.tma)
    ways = [select_gemm(target, s.is_b_streamed, streamed) for s in products]
    if streamed and not all(way is not None and way.is_streamed for way in ways):
        return _by_strategy(found, False, target)
    names = {s.arg: way.name for s, way in zip(products, ways, strict=True) if way is not None}
    kept = found if streamed else [s for s in without_producer(found) if s.arg in names]
    return [replace(s, strategy=names.get(s.arg, "")) for s in kept]


@dataclass(frozen=True)
class _Known:
    """What a producer warp knows: all that is settled when the grid may be enumerated, and more
    after some of the waits of a task."""

    settled: DataAvailability
    waits: tuple[Wait, ...]
    target: CudaTarget

    @property
    def costs(self) -> StreamCosts:
        return self.target.costs.stream

    @property
    def placed(self) -> PlacedCall:
        return self.settled.placed

    def after(self, *exprs: Node) -> tuple[str, ...] | None:
        """Events after which it knows the values; None if it never does."""
        found = self.settled.required_waits(self.waits, *exprs)
        return None if found is None else tuple(dict.fromkeys(w.event for w in found))


def _of_call(
    program: Program, known: _Known, guarded: set[tuple[str, str]], hops: bool
) -> list[Stream]:
    p, costs = known.placed, known.costs
    if p.call.cuda_body is not None:
        return _by_producer(program, known, guarded, p.call.cuda_body.producer)
    limits, sizes = coordinate_bounds(p.axes), dict[int, int | None]()
    paged: dict[int, Stream] = {}  # by the product or the slice that takes the pages
    for k, region in enumerate(p.call.reads):
        tensor = program.tensor(region.tensor)
        layout = layout_of(region, tensor)
        if layout is None or not bulk_aligned(layout, tensor):
            continue
        if not _free(p, region, guarded):
            continue
        sizes[k] = _upper(mul(mul(layout.rows, layout.row), Const(tensor.dtype.size)), limits)
        found = _paged(known, k, layout, tensor, limits)
        if found is None and not _by_data(region):
            found = _looped(p, k, tensor, limits, costs)
        if found is not None and _more(known, k, paged.get(found[0]), sizes):
            paged[found[0]] = found[1]
    if sum(s.kind is StreamKind.loop for s in paged.values()) > costs.min_stages:
        paged = {k: s for k, s in paged.items() if s.kind is not StreamKind.loop}
    used = {s.arg for s in paged.values()}
    held = _held({k: n for k, n in sizes.items()
                  if k not in used and not _by_data(p.call.reads[k])
                  and not _asked(known, p.call.reads[k])}, costs)
    if len(held) + sum(_pages(known, s) for s in paged.values()) > costs.min_stages:
        held = []
    why = "no event guards it; used as a whole"
    found_all = [Stream(p.call.name, k, StreamKind.whole, 0, why) for k in held]
    found_all += [s for _, s in sorted(paged.items())]
    total = sum(sizes[s.arg] or costs.small_task_bytes for s in found_all)
    small = hops and total <= costs.small_task_bytes
    cap = (costs.no_hop_bytes_in_flight if not hops
           else costs.small_task_bytes_in_flight if small else costs.bytes_in_flight)
    ahead = costs.l2_prefetch_stages if small else 0
    wide, counted = (
        any(s.is_b_streamed for s in found_all),
        not loads_of(*(a.extent for a in p.call.grid)),
    )
    long = total >= costs.long_task_bytes
    several = has_successive_tiles(known.settled.plan, p, known.target.multiprocessors)
    rush = 0
    if not wide and hops and any(_by_data(p.call.reads[s.arg]) for s in found_all):
        # None come before the data does; then few others hop.
        cap = costs.long_task_burst_bytes if long else costs.indexed_task_bytes_in_flight
    elif not wide:
        cap = _shared(known, cap)
        rush = costs.long_task_burst_bytes * (hops and long)
    elif hops and counted:
        rush = costs.several_tiles_bytes_in_flight if several else costs.wide_burst_bytes
    elif hops and several:
        cap = costs.several_tiles_bytes_in_flight
    return [
        replace(s, max_bytes_in_flight=cap, l2_prefetch_stages=ahead, burst_bytes_in_flight=rush)
        for s in found_all
    ]


def _shared(known: _Known, cap: int) -> int:
    """What may be in flight for a task where a grid has fewer than there are workers: the memory
    takes as much from fewer of them."""
    workers, grid = known.target.multiprocessors, known.placed.call.grid
    tiles = [a.extent.value if isinstance(a.extent, Const) else workers for a in grid]
    return min(known.costs.no_hop_bytes_in_flight,
               cap * workers // min(workers, max(1, prod(tiles))))


def _by_producer(
    program: Program, known: _Known, guarded: set[tuple[str, str]], producer: Producer | None
) -> list[Stream]:
    """A custom body reads its operands in place, unless it has a producer of its own. All operands
    of the producer must be there when the producer warp comes to a task."""
    p = known.placed
    operands = () if producer is None else producer.operands
    named = [k for k in range(len(p.call.reads)) if p.call.body.args[k].name in operands]
    regions = [p.call.reads[k] for k in named]
    exprs = [e for r in regions for e in region_exprs(r)]
    if not all(_free(p, r, guarded) for r in regions) or known.after(*exprs) != ():
        return []
    why = "no event guards it; a tuned body takes its pages"
    return [Stream(p.call.name, k, StreamKind.hand, known.costs.bytes_in_flight, why) for k in named
            if program.tensor(p.call.reads[k].tensor).role in (Role.weight, Role.state)]


def _pages(known: _Known, s: Stream) -> int:
    """How many pages a task takes at most; a loop, or a product by chunks, may take any number."""
    if s.is_b_streamed or s.kind is StreamKind.loop:
        return known.costs.min_stages
    p = known.placed
    product = product_of(p.call.body, s.arg)
    assert product is not None and isinstance(product.k, Const)
    row = product.k.value * p.call.body.args[s.arg].storage.size
    return -(-s.rows // (PANEL * product.bundle)) * -(-row // s.k_bytes_per_stage)


def _more(
    known: _Known, arg: int, other: Stream | None, sizes: dict[int, int | None]
) -> bool:
    """True if the operand is the side of its product that is better streamed: weights, then the
    larger one."""

    def worth(k: int) -> tuple[bool, int]:
        tensor = known.settled.plan.program.tensor(known.placed.call.reads[k].tensor)
        return tensor.role is Role.weight, sizes[k] or known.costs.small_task_bytes

    return other is None or worth(arg) > worth(other.arg)


def _held(sizes: dict[int, int | None], costs: StreamCosts) -> list[int]:
    """Operands that stay in the ring as a whole, as far as there is room."""
    out: list[int] = []
    room = costs.max_held_bytes_per_task
    for k, size in sizes.items():
        if size is not None and costs.min_held_bytes <= size <= min(costs.max_held_bytes, room):
            out.append(k)
            room -= size
    return out


def _asked(known: _Known, region: Region) -> bool:
    """Threads ask for it before the task waits, if it does."""
    tensor = known.settled.plan.program.tensor(region.tensor)
    size, waits = product(tile_shape(region, tensor)), any(w.loop is None for w in known.waits)
    return (
        waits
        and known.settled.is_region_known(region)
        and isinstance(size, Const)
        and size.value <= known.target.costs.handoff.max_prefetch_elements
    )


def _free(p: PlacedCall, region: Region, guarded: set[tuple[str, str]]) -> bool:
    """No task of this launch decides what the region holds."""
    name = region.tensor
    written = any(r.tensor == name for r in (*p.call.writes, *p.call.accumulates))
    return not written and (p.call.name, name) not in guarded


def _by_data(region: Region) -> bool:
    """Run-time data decides where it lies."""
    return bool(loads_of(*region_exprs(region)))


def _paged(
    known: _Known, arg: int, layout: Layout, tensor: Tensor, limits: Mapping[str, Bounds]
) -> tuple[int, Stream] | None:
    """The product that uses the operand up and its stream, if tensor cores can take its pages."""
    p, costs = known.placed, known.costs
    product, size = product_of(p.call.body, arg), tensor.dtype.size
    if product is None:
        return None
    rows, columns = _upper(product.rows, limits), _upper(product.columns, limits)
    k = product.k
    if narrow_dtype(p.call.body, product.other) is not tensor.dtype:
        return None
    if not isinstance(k, Const) or k.value * size % _STEP or product.span * size % _STEP:
        return None
    if rows is None or columns is None:
        return None
    if product.packed and tensor.shape[-5] != Const(product.bundle):
        return None  # some panels of a bundle: their spans lie apart
    apart = product.packed and layout.rows != Const(1)  # bundles, which come only by groups
    many = product.packed and columns > costs.max_packed_whole_columns
    wide = apart or many or not costs.stages_whole_operand(columns, k.value * size)
    if wide and not (product.packed and free_vars(product.columns) <= limits.keys()):
        return None
    # By the number of columns the order of pages is chosen, where they go by chunks.
    told = (*region_exprs(p.call.reads[arg]), *((product.columns,) if wide else ()))
    after = known.after(*told)
    if after is None:
        return None
    if not product.packed:
        why = "no event guards it; rows used up by a matrix product"
        chunk = min(costs.row_bytes_per_stage, k.value * size)
        kind = StreamKind.rows
        return product.id, Stream(
            p.call.name, arg, kind, 0, why, chunk, rows, columns, wide, wait_events=after
        )
    chunk = costs.stage_spans(k.value // product.span, product.bundle) * product.span * size
    why = "no event guards it; packed panels, used up by a matrix product"
    why += ", line by line for many columns" if wide else ""
    kind = StreamKind.packed
    return product.id, Stream(
        p.call.name,
        arg,
        kind,
        0,
        why,
        chunk,
        rows,
        columns,
        wide,
        wait_events=after,
        bundle=product.bundle,
    )


def _looped(
    p: PlacedCall, arg: int, tensor: Tensor, limits: Mapping[str, Bounds], costs: StreamCosts
) -> tuple[int, Stream] | None:
    """The slice that a loop takes of the operand in each iteration, if every one is a page that
    surely lies inside the operand."""
    page = loop_operand(p.call, arg)
    if page is None:
        return None
    counter = counter_bounds(numeric_bounds(page.loop.extent, within(limits)))
    inner = {**limits, f"%{page.loop.var}": counter}
    for axis, extent in zip(page.sub_axes, p.call.body.args[arg].type.shape, strict=True):
        first, end = (axis.index, add(axis.index, Const(1))) if isinstance(axis, Point) \
            else (axis.start, axis.stop)
        low, high, room = _lower(first, inner), _upper(end, inner), _lower(extent, limits)
        if low is None or low < 0 or high is None or room is None or high > room:
            return None
    layout = layout_of(page.region, tensor)
    if layout is None or not bulk_aligned(layout, tensor):
        return None
    size = _upper(mul(mul(layout.rows, layout.row), Const(tensor.dtype.size)), inner)
    if size is None or not costs.min_held_bytes <= size <= costs.max_held_bytes:
        return None
    why = "no event guards it; a loop takes a page an iteration"
    return page.id, Stream(p.call.name, arg, StreamKind.loop, 0, why)


# ---- bounds of extents ---------------------------------------------------------------------


def _upper(e: Node, limits: Mapping[str, Bounds]) -> int | None:
    return numeric_bounds(e, within(limits))[1]


def _lower(e: Node, limits: Mapping[str, Bounds]) -> int | None:
    return numeric_bounds(e, within(limits))[0]
