"""Who runs a static tile: when two grids put tiles of the same coordinates on one worker."""

from __future__ import annotations

import islpy as isl

from ..analysis.access import HEADER, ITERATION_MARK
from ..analysis.event_maps import Events, EventUse
from ..ir.expr import Node, product
from ..ir.interval import at_least_zero
from ..ir.plan import Schedule, ScheduleKind
from ..ir.program import PlacedCall, Program
from ..ir.walk import free_vars, loads_of


def call_of(node: str) -> str:
    """The call whose task, header, or iteration of a loop in its body, a node is."""
    return node.removesuffix(HEADER).partition(ITERATION_MARK)[0]


def tiles_of(p: PlacedCall) -> Node | None:
    """Number of tiles, where it has a closed form over dims and loop variables."""
    extents = [a.extent for a in p.call.grid]
    if loads_of(*extents) or free_vars(*extents) & set(p.call.coords):
        return None
    return product([at_least_zero(e) for e in extents])


def same_tiles(a: PlacedCall, b: PlacedCall) -> bool:
    """True if tiles of equal coordinates have equal numbers, within equal loop iterations."""
    extents = [[axis.extent for axis in p.call.grid] for p in (a, b)]
    return extents[0] == extents[1] and tiles_of(a) is not None


def one_for_one(events: Events, wait: EventUse, notify: EventUse, loops: int) -> bool:
    """True if a waiter needs only the notifier of its own grid coordinates, and of its own
    iteration of the `loops` outermost loops (which both are in)."""
    if wait.is_data_dependent or notify.is_data_dependent:
        return False
    pairs = events.map(notify).apply_range(events.map(wait).reverse())
    first, second = (pairs.dim(t) for t in (isl.dim_type.in_, isl.dim_type.out))
    mine = [f"x{k}" for k in range(first)]
    theirs = [f"y{k}" for k in range(second)]
    tiles = len(events.graph.nodes[wait.node].call.grid)
    equal = [f"x{k} = y{k}" for k in range(loops)]
    equal += [f"x{first - k} = y{second - k}" for k in range(1, tiles + 1)]
    cond = " and ".join(equal) or "0 = 0"
    return bool(pairs.is_subset(
        isl.Map(f"{{ [{', '.join(mine)}] -> [{', '.join(theirs)}] : {cond} }}")))


def not_on_one_worker(
    program: Program, events: Events, schedules: dict[str, Schedule], wait: EventUse
) -> str:
    """Why the waiter and its notifiers may run on different workers; empty if they never do.

    Tile t runs on worker (t + shift) mod workers. Equal grids number their tiles alike, so equal
    shifts put tiles of equal coordinates on one worker, whatever the number of workers; a worker
    takes grids in program order, and events only lead forward, so the notifier is done by then."""
    notifies = [n for n in events.notifies if n.event.name == wait.event.name]
    if wait.node.endswith(HEADER):
        return "every worker waits before the grid"
    if wait.node not in schedules:
        return "a body waits for it in a loop"
    if len({n.node for n in notifies}) != 1:
        return "several calls notify it"
    a, b = program.placed(notifies[0].node), program.placed(wait.node)
    mine, theirs = schedules[a.call.name], schedules[b.call.name]
    if not (mine.kind is theirs.kind is ScheduleKind.static):
        return "tiles are claimed at run time"
    if not same_tiles(a, b) or mine.shift != theirs.shift:
        return "tiles lie on other workers than those they need"
    loops = {lp.var for p in (a, b) for lp in p.loops}
    used = free_vars(mine.shift, *(axis.extent for axis in a.call.grid)) & loops
    if used and a.loops != b.loops:
        return "tiles lie on other workers than those they need"
    depth = len(a.loops) if used else 0
    if not all(one_for_one(events, wait, n, depth) for n in notifies):
        return "a tile needs other tiles than its own"
    return ""
