"""The plan: everything a back end needs. Events, waits and notifies per call, schedules, memory.

Cells are visited by small loop nests in the coordinates of a task (or, for releases, of a cell).
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
    """var = lo, lo+step, .. below hi; bounds may use outer variables."""

    var: str
    lo: Node
    hi: Node
    step: int = 1


@dataclass(frozen=True, slots=True)
class Nest:
    """Visit `index` for every value of the axes for which all guards are non-zero. A guard is
    evaluated innermost; an axis may be empty."""

    axes: tuple[NestAxis, ...]
    guards: tuple[Node, ...]
    index: tuple[Node, ...]

    @property
    def single(self) -> bool:
        """True if it visits one index, whatever the values are."""
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
    """The cells of an event region, in order; slices are clipped as for tensors."""
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
class Chunk:
    """Where a wait stands inside a body: at the start of each iteration of the outermost loop over
    value `var` = 0 .. extent-1. What it guards is touched in that loop only."""

    var: int
    extent: Node


class Hazard(Enum):
    """Two tasks touch one element: the second reads what the first wrote, writes what it read, or
    writes what it wrote."""

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
    """Wait until every visited cell of `event` has reached its count. Run-time data in the nests or
    the count is guarded by earlier waits of the same list. A wait stands before the body or, with
    `chunk`, in a loop of it; its nests may then use the loop's value `%var`.

    `guards` are the hazards because of which the wait stands here. Paths through it order more
    hazards, which it does not list. A wait that the user `declared` lists the hazards on all
    tensors that this call shares with the calls that notify `event`."""

    event: str
    cells: tuple[Nest, ...]
    guards: tuple[Guard, ...] = ()
    chunk: Chunk | None = None
    declared: bool = False

    @property
    def reason(self) -> str:
        """The guards as text."""
        return "declared" if self.declared else ", ".join(map(str, self.guards))

    def guarded(self, call: Call) -> tuple[tuple[int, str], ...]:
        """The arguments of the waiting call whose hazards this wait orders, with their modes."""
        args = zip(call.body.args, call.regions, strict=True)
        return tuple((k, arg.mode) for k, (arg, region) in enumerate(args)
                     if any(g.covers(region, arg.mode) for g in self.guards))

    def all_cells(self) -> tuple[Nest, ...]:
        """What the whole task waits for: all iterations, in which a cell may come twice."""
        if self.chunk is None:
            return self.cells
        axis = NestAxis(f"%{self.chunk.var}", Const(0), self.chunk.extent)
        return tuple(Nest((axis, *n.axes), n.guards, n.index) for n in self.cells)


@dataclass(frozen=True, slots=True)
class Notify:
    """Add 1 to every visited cell, once for each visit."""

    event: str
    cells: tuple[Nest, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The inverse map of a wait: nests over the cell coordinates c0, c1, .. that visit the tasks of
    `call` (all of its coordinates, loops first) which wait on that cell."""

    event: str
    call: str
    tasks: tuple[Nest, ...]


class ScheduleKind(Enum):
    static = "static"
    ticket = "ticket"
    push = "push"


class Policy(Enum):
    """Static only: tile t of a grid goes to worker (t + shift) mod workers. `round_robin` has shift
    0; `balanced` shifts by the tiles of the earlier grids, so that leftovers even out; `affine`
    takes the shift of the grid whose tiles it reads one for one, so that its worker made them."""

    round_robin = "round_robin"
    balanced = "balanced"
    affine = "affine"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`group` numbers runs of adjacent push calls that share one queue (-1: none); `pending` are
    the events whose cells a task of this call must see dispatched before it is pushed: those
    notified inside the group in the same iteration. `shift` is the offset of static tiles, over
    dims and loop variables."""

    kind: ScheduleKind
    policy: Policy
    reason: str
    shift: Node
    group: int = -1
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallPlan:
    """`header` waits guard the run-time values in the grid's extents: every worker does them before
    it enumerates the grid (they see loop variables only). `waits` go before the body, in order."""

    call: str
    header: tuple[Wait, ...]
    waits: tuple[Wait, ...]
    notifies: tuple[Notify, ...]
    schedule: Schedule
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """Where a scratch tensor lies in the workspace: byte offset and size, over dims."""

    tensor: str
    offset: Node
    size: Node


class HandoffKind(Enum):
    """How what a producer wrote reaches a consumer. `counter`: a cell counts notifies. `worker`: no
    cell, both run on one worker, whose threads meet between tasks. `flag`: no cell, each element
    travels in a word with the launch's epoch. `bulk`: a cell, then one copy into shared memory.
    `table`: a cell for the tasks, and words for the loader, which needs nothing but these numbers
    to go on. `again`: no cell, loaders find such numbers again from what carries flags."""

    counter = "counter"
    worker = "worker"
    flag = "flag"
    bulk = "bulk"
    table = "table"
    again = "again"


@dataclass(frozen=True, slots=True)
class Handoff:
    """One edge: `call` (or the header before its grid) waits on `event`. `tensors` are those that
    carry flags, that are found again, or the one that is copied."""

    event: str
    call: str
    kind: HandoffKind
    reason: str
    tensors: tuple[str, ...] = ()


class StreamKind(Enum):
    """How a streamed operand is used up. `rows` and `packed` page by page, by the matrix product
    that it feeds (plain rows, or panels whose blocks of columns lie together); `loop` a page an
    iteration of the loop that walks it; `whole` as one page that stays until the task ends. `hand`:
    a hand-tuned body takes the pages that a text of its own brings."""

    rows = "rows"
    packed = "packed"
    loop = "loop"
    whole = "whole"
    hand = "hand"

    @property
    def of_product(self) -> bool:
        return self in (StreamKind.rows, StreamKind.packed)


@dataclass(frozen=True, slots=True)
class Stream:
    """A read operand (argument number `arg` of a call) that no event guards and whose bytes the
    loader brings into shared memory ahead of the waits. Where it does not (`loaded` false), a
    product takes the pages where they lie, in the same order, so to the same bits. `chunk` are the
    bytes of a row in one page (0: all) of `bundle` panels, `rows` and `columns` the most that the
    operand and the product's other side have; where that side is not staged as a whole (`wide`), K
    goes by line by line. While the loader is at this call `cap` bytes may be in flight, and with
    the ring full and nothing in flight it asks for `ahead` pages as far as the L2; `rush` bytes (0:
    `cap`) may be in flight of pages that come when their own task has begun. Run-time data
    that decides where the operand lies is there once the waits of the call for the events `after`
    are over, of which each has one cell for the whole grid: the loader does them too, or has a
    hand-off by which it knows the data sooner. `strategy` names the way to multiply, for a product
    (targets/gemm.py)."""

    call: str
    arg: int
    kind: StreamKind
    cap: int
    reason: str
    chunk: int = 0
    rows: int = 0
    columns: int = 0
    wide: bool = False
    ahead: int = 0
    rush: int = 0
    loaded: bool = True
    after: tuple[str, ...] = ()
    bundle: int = 1
    strategy: str = ""

    @property
    def page(self) -> int:
        """Bytes of a page of a product."""
        return PANEL * self.bundle * self.chunk


def in_place(streams: Iterable[Stream]) -> list[Stream]:
    """The same without a loader: only products care, what else comes by pages is read in place."""
    return [replace(s, loaded=False, after=()) for s in streams if s.kind.of_product]


@dataclass(frozen=True)
class Plan:
    """`words` says where the tensors that carry flags lie, in memory of their own (`word_bytes`)
    in which nothing but words of earlier epochs may ever have been. Back ends other than cuda
    ignore `handoffs`, and hold those tensors like any scratch. `program` is what was proved, but
    that the tensors `reused` lack the axis of a loop: its iterations share them. Of those in `own`
    each iteration of an outermost loop reads what it has written itself."""

    program: Program
    events: tuple[EventTensor, ...]
    calls: tuple[CallPlan, ...]
    releases: tuple[Release, ...]
    buffers: tuple[Buffer, ...] = ()
    workspace: Node = field(default_factory=lambda: Const(0))
    reused: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    streams: tuple[Stream, ...] = ()
    handoffs: tuple[Handoff, ...] = ()
    words: tuple[Buffer, ...] = ()
    word_bytes: Node = field(default_factory=lambda: Const(0))

    def event(self, name: str) -> EventTensor:
        return next(e for e in self.events if e.name == name)

    def call(self, name: str) -> CallPlan:
        return next(c for c in self.calls if c.call == name)

    @property
    def flagged(self) -> frozenset[str]:
        """Tensors whose elements are words that carry flags."""
        kinds = (HandoffKind.flag, HandoffKind.table)
        return frozenset(t for h in self.handoffs if h.kind in kinds for t in h.tensors)

    def __str__(self) -> str:
        return plan_text(self)


def follows(plan: Plan, p: PlacedCall, workers: int) -> bool:
    """True if a worker has tiles of a call one after the other: it claims them, or there are more
    of them than workers."""
    tiles = product(tuple(a.extent for a in p.call.grid))
    claimed = plan.call(p.call.name).schedule.kind is ScheduleKind.ticket
    return claimed or (isinstance(tiles, Const) and tiles.value > workers)
