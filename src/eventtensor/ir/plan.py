"""The plan: all that a back end needs of events, waits, notifies, schedules, hand-offs and memory.

Small loop nests over the coordinates of a task visit cells. Those of a release visit tasks, over
the coordinates of a cell. The passes of `schedule` make plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from .expr import Const, Node, Var, minimum, product
from .products import PANEL
from .program import Call, EventTensor, PlacedCall, Program
from .tensor import Point, Region, Rows, Slice
from .text import plan_text
from .tile import ArgMode
from .walk import LoadFn, evaluate


@dataclass(frozen=True, slots=True)
class NestAxis:
    """`var` = lo, lo+step, .. below hi. The bounds may use outer variables."""

    var: str
    lo: Node
    hi: Node
    step: int = 1


@dataclass(frozen=True, slots=True)
class Nest:
    """Visits `index` for all values of the axes for which every guard is non-zero. Guards are
    evaluated innermost. An axis may be empty."""

    axes: tuple[NestAxis, ...]
    guards: tuple[Node, ...]
    index: tuple[Node, ...]

    @property
    def is_single(self) -> bool:
        """True if the nest visits exactly one index, for all values."""
        return not self.axes and not self.guards


def visit(
    nest: Nest, env: Mapping[str, int], load: LoadFn | None = None
) -> Iterator[tuple[int, ...]]:
    """The indices a nest visits, in order."""

    def level(k: int, scope: dict[str, int]) -> Iterator[tuple[int, ...]]:
        if k == len(nest.axes):
            if all(evaluate(g, scope, load) for g in nest.guards):
                yield tuple(evaluate(i, scope, load) for i in nest.index)
            return
        a = nest.axes[k]
        for v in range(evaluate(a.lo, scope, load), evaluate(a.hi, scope, load), a.step):
            yield from level(k + 1, {**scope, a.var: v})

    yield from level(0, dict(env))


def nest_exprs(nest: Nest) -> list[Node]:
    bounds = [b for a in nest.axes for b in (a.lo, a.hi)]
    return [*bounds, *nest.guards, *nest.index]


def region_nest(region: Region, event: EventTensor) -> Nest:
    """The cells of an event region, in order. Slices are clipped as those of tensors."""
    axes: list[NestAxis] = []
    index: list[Node] = []
    for k, axis in enumerate(region.axes):
        match axis:
            case Point(at):
                index.append(at)
            case Slice(start, stop):
                axes.append(NestAxis(f"w{k}", start, minimum(stop, event.shape[k])))
                index.append(Var(f"w{k}"))
            case Rows(var, extent, at):
                axes.append(NestAxis(var, Const(0), extent))
                index.append(at)
    return Nest(tuple(axes), (), tuple(index))


@dataclass(frozen=True, slots=True)
class BodyLoop:
    """An outermost loop of a body, over value `var` = 0 .. extent-1, at whose iterations waits
    stand. The body touches what they guard in that loop alone."""

    var: int
    extent: Node


class Hazard(Enum):
    """Two tasks touch one element. The second reads what the first wrote (raw), writes what it
    read (war), or writes what it wrote (waw)."""

    raw = "raw"
    war = "war"
    waw = "waw"


@dataclass(frozen=True, slots=True)
class Guard:
    """A wait orders this hazard on this tensor."""

    tensor: str
    hazard: Hazard

    def __str__(self) -> str:
        return f"{self.tensor} ({self.hazard.value})"

    def covers(self, region: Region, mode: str) -> bool:
        """True if the hazard concerns an argument of the waiting task."""
        reads = self.hazard is Hazard.raw
        return self.tensor == region.tensor and \
            mode in (ArgMode.accumulate, ArgMode.read if reads else ArgMode.write)


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until every visited cell of `event` has its count. Earlier waits of the same list guard
    run-time data in the nests and in the count. A wait stands before the body. With `loop` it
    stands at the start of each iteration of that loop, and its nests may use the value `%var`.

    `guards` are the hazards because of which the wait stands here. Paths through it order more
    hazards, which it does not list. A wait that the user declares (`is_declared`) lists the hazards
    on all tensors that this call shares with the calls that notify `event`."""

    event: str
    cells: tuple[Nest, ...]
    guards: tuple[Guard, ...] = ()
    loop: BodyLoop | None = None
    is_declared: bool = False

    @property
    def reason(self) -> str:
        """The guards as text."""
        return "declared" if self.is_declared else ", ".join(map(str, self.guards))

    def guarded_args(self, call: Call) -> tuple[tuple[int, str], ...]:
        """The arguments of the waiting call whose hazards this wait orders, with their modes."""
        args = zip(call.body.args, call.regions, strict=True)
        return tuple((k, arg.mode) for k, (arg, region) in enumerate(args)
                     if any(g.covers(region, arg.mode) for g in self.guards))

    def all_cells(self) -> tuple[Nest, ...]:
        """The cells for which the whole task waits, in all iterations. A cell may occur twice."""
        if self.loop is None:
            return self.cells
        axis = NestAxis(f"%{self.loop.var}", Const(0), self.loop.extent)
        return tuple(Nest((axis, *n.axes), n.guards, n.index) for n in self.cells)


@dataclass(frozen=True, slots=True)
class Notify:
    """Adds 1 to a cell at each visit."""

    event: str
    cells: tuple[Nest, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The inverse map of a wait. Nests over the cell coordinates c0, c1, .. visit the tasks of
    `call` that wait on that cell: all coordinates, those of loops first."""

    event: str
    call: str
    tasks: tuple[Nest, ...]


class ScheduleKind(Enum):
    static = "static"
    ticket = "ticket"
    push = "push"


class Policy(Enum):
    """Of static schedules: tile t of a grid goes to worker (t + shift) mod workers. `round_robin`
    has shift 0. `balanced` shifts by the tiles of the earlier grids, so that remainders even out.
    `affine` takes the shift of the grid whose tiles it reads one for one, so that the same worker
    produces and consumes them."""

    round_robin = "round_robin"
    balanced = "balanced"
    affine = "affine"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`group` numbers runs of adjacent push calls that share one queue (-1: none). `pending` are
    events that calls of the group notify in the same iteration: their cells must be dispatched
    before a task of this call is pushed. `shift` is the offset of static tiles, over dims and loop
    variables."""

    kind: ScheduleKind
    policy: Policy
    reason: str
    shift: Node
    group: int = -1
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallPlan:
    """`header` waits guard the run-time values in the grid's extents. Every worker does them before
    it enumerates the grid, so they use loop variables alone. `waits` go before the body, in
    order."""

    call: str
    header: tuple[Wait, ...]
    waits: tuple[Wait, ...]
    notifies: tuple[Notify, ...]
    schedule: Schedule
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """A scratch tensor in the workspace: its offset and size in bytes, over dims."""

    tensor: str
    offset: Node
    size: Node


class HandoffKind(Enum):
    """How data goes from a producer to a consumer.

    `counter`: a cell counts notifies. `same_worker`: no cell, because both tasks run on one worker,
    whose threads synchronise between tasks. `tagged`: no cell, because each element is tagged with
    the launch's epoch. `bulk`: a cell, then one copy into shared memory. `tagged_index`: a cell for
    the tasks, and tagged elements for the producer warp, which needs these indices alone.
    `recompute`: no cell, because each producer warp recomputes the indices from tagged elements.
    """

    counter = "counter"
    same_worker = "same_worker"
    tagged = "tagged"
    bulk = "bulk"
    tagged_index = "tagged_index"
    recompute = "recompute"


@dataclass(frozen=True, slots=True)
class Handoff:
    """One edge: `call`, or the header before its grid, waits on `event`. `tensors` are those that
    are tagged or recomputed, or the one that is copied."""

    event: str
    call: str
    kind: HandoffKind
    reason: str
    tensors: tuple[str, ...] = ()


class StreamKind(Enum):
    """How a task consumes a streamed operand. `rows` and `packed`: a matrix product takes it stage
    by stage, as plain rows or as packed panels. `loop`: each iteration of a loop takes one stage.
    `whole`: one stage holds it until the task ends. `hand`: the producer of a custom body loads it,
    and the body takes the stages."""

    rows = "rows"
    packed = "packed"
    loop = "loop"
    whole = "whole"
    hand = "hand"

    @property
    def is_product(self) -> bool:
        return self in (StreamKind.rows, StreamKind.packed)


@dataclass(frozen=True, slots=True)
class Stream:
    """A read operand, argument `arg` of a call, that no event guards. The producer warp loads it
    into the pipeline ahead of the waits. Without `is_streamed`, a product reads it in place, in the
    same order and so to the same bits.

    A stage has `k_bytes_per_stage` bytes (0: all) of each row of `bundle` panels. The operand has
    up to `rows` rows, and the other operand of the product up to `columns` columns. With
    `is_b_streamed` that operand is loaded line by line, not as a whole.

    While the producer warp is at this call, `max_bytes_in_flight` may be in flight. In fills that
    start after their own task it is `burst_bytes_in_flight` (0: the same). When the pipeline is
    full and nothing is in flight, it prefetches `l2_prefetch_stages` stages into the L2.

    Run-time data may decide where the operand lies. It is final after the waits of the call for
    `wait_events`, each of which has one cell for the whole grid. The producer warp does these waits
    too, or a hand-off gives it the data sooner. `strategy` is the way to multiply
    (targets/gemm.py)."""

    call: str
    arg: int
    kind: StreamKind
    max_bytes_in_flight: int
    reason: str
    k_bytes_per_stage: int = 0
    rows: int = 0
    columns: int = 0
    is_b_streamed: bool = False
    l2_prefetch_stages: int = 0
    burst_bytes_in_flight: int = 0
    is_streamed: bool = True
    wait_events: tuple[str, ...] = ()
    bundle: int = 1
    strategy: str = ""

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of a product."""
        return PANEL * self.bundle * self.k_bytes_per_stage


def without_producer(streams: Iterable[Stream]) -> list[Stream]:
    """The streams of a kernel without a producer warp. Only those of products remain."""
    return [replace(s, is_streamed=False, wait_events=()) for s in streams if s.kind.is_product]


@dataclass(frozen=True)
class Plan:
    """`program` is the proved program, except that the tensors `shared_scratch` lack the axis of a
    loop: its iterations share them. Each iteration of an outermost loop reads of the tensors
    `iteration_private` only what the same iteration wrote.

    `words` are the buffers of tagged tensors. They lie in memory of `word_bytes` bytes of their
    own, which only ever holds tagged elements of earlier epochs. Back ends other than cuda ignore
    `handoffs`, and treat tagged tensors as scratch."""

    program: Program
    events: tuple[EventTensor, ...]
    calls: tuple[CallPlan, ...]
    releases: tuple[Release, ...]
    buffers: tuple[Buffer, ...] = ()
    workspace: Node = field(default_factory=lambda: Const(0))
    shared_scratch: tuple[str, ...] = ()
    iteration_private: frozenset[str] = frozenset()
    streams: tuple[Stream, ...] = ()
    handoffs: tuple[Handoff, ...] = ()
    words: tuple[Buffer, ...] = ()
    word_bytes: Node = field(default_factory=lambda: Const(0))

    def event(self, name: str) -> EventTensor:
        return next(e for e in self.events if e.name == name)

    def call(self, name: str) -> CallPlan:
        return next(c for c in self.calls if c.call == name)

    @property
    def tagged_tensors(self) -> frozenset[str]:
        """The tensors whose elements are tagged."""
        kinds = (HandoffKind.tagged, HandoffKind.tagged_index)
        return frozenset(t for h in self.handoffs if h.kind in kinds for t in h.tensors)

    def __str__(self) -> str:
        return plan_text(self)


def has_successive_tiles(plan: Plan, p: PlacedCall, workers: int) -> bool:
    """True if a worker may run several tiles of a call in succession: it claims them, or there
    are more tiles than workers."""
    tiles = product(tuple(a.extent for a in p.call.grid))
    claimed = plan.call(p.call.name).schedule.kind is ScheduleKind.ticket
    return claimed or (isinstance(tiles, Const) and tiles.value > workers)
