"""When what goes from call to call may stay in the shared memory of a cluster of workers."""

from __future__ import annotations

import islpy as isl

from ..analysis.access import HEADER, accesses
from ..analysis.deps import dependences
from ..analysis.uses import Events, Use
from ..ir.clusters import SIZES, cluster_of, share
from ..ir.expr import Const
from ..ir.layout import divisor
from ..ir.plan import Plan, ScheduleKind
from ..ir.program import PlacedCall, Program
from ..ir.tensor import Role, Rows, tile_shape
from ..ir.walk import bounds
from .owners import call_of, same_tiles

MOST_BYTES = 32 * 1024  # of a tile that is held for the others


def cluster_tensor(plan: Plan, events: Events, wait: Use) -> tuple[str, str]:
    """The tensor that stays within clusters, or why there is none.

    Tile t runs on worker (t + shift) mod workers, workers are a multiple of a cluster's size, and
    so is the shift: tiles that differ in the last coordinate alone are on the members of one
    cluster, in this order. A member goes on with its tile of the taker as soon as it has made its
    own. That one waits for tiles of the same cluster, which all members come to in the same order,
    and for what was there before the maker: so no member waits for what comes later on another."""
    program = plan.program
    makers = {n.node for n in events.notifies if n.event.name == wait.event.name}
    if wait.node.endswith(HEADER) or wait.node not in {c.call for c in plan.calls}:
        return "", "it is not waited for at the start of a task"
    if len(makers) != 1:
        return "", "several calls notify it"
    if sum(w.event.name == wait.event.name for w in events.waits) != 1:
        return "", "several calls wait for it"
    maker, taker = program.placed(makers.pop()), program.placed(wait.node)
    why = _apart(plan, maker, taker) or _group_for_group(events, wait, maker, taker)
    if why:
        return "", why
    others = {w.event.name for w in events.waits if call_of(w.node) == taker.call.name}
    others.discard(wait.event.name)
    if any(n.node == maker.call.name and n.event.name in others for n in events.notifies):
        return "", f"{taker.call.name} also waits for other tiles of {maker.call.name}"
    return _tensor(program, maker, taker)


def _apart(plan: Plan, maker: PlacedCall, taker: PlacedCall) -> str:
    """Why tiles of the two are not on the same members in turn."""
    grid, position = maker.call.grid, maker.position
    if taker.position != (*position[:-1], position[-1] + 1):
        return f"{taker.call.name} does not follow {maker.call.name} at once"
    if not grid or not isinstance(grid[-1].extent, Const) or grid[-1].extent.value not in SIZES:
        return f"the last axis of {maker.call.name} has none of {', '.join(map(str, SIZES))} tiles"
    mine, theirs = (plan.call(p.call.name).schedule for p in (maker, taker))
    if not (mine.kind is theirs.kind is ScheduleKind.static):
        return "tiles are claimed at run time"
    if not same_tiles(maker, taker):
        return "tiles lie on other workers than those they need"
    if mine.shift != theirs.shift or divisor(mine.shift) % grid[-1].extent.value:
        return "grids do not begin with a cluster (static:round_robin does)"
    if any(h.target == "cuda" for p in (maker, taker) for h in p.call.hand_tuned):
        return "a body is hand-tuned"
    if any(s.call == taker.call.name for s in plan.streams):
        return f"the loader brings operands of {taker.call.name}"
    return ""


def _group_for_group(events: Events, wait: Use, maker: PlacedCall, taker: PlacedCall) -> str:
    if wait.data or any(n.data for n in events.notifies if n.event.name == wait.event.name):
        return "run-time data decides who waits for whom"
    pairs = [relation for _, relation in events.edges(wait)]
    return "" if all(_in_groups(x) for x in pairs) else "a tile needs tiles of other clusters"


def _in_groups(pairs: isl.Map) -> bool:
    """True if tasks that belong together differ in the last coordinate alone."""
    n = pairs.dim(isl.dim_type.in_)
    mine, theirs = ([f"{c}{k}" for k in range(n)] for c in "xy")
    equal = " and ".join(f"{a} = {b}" for a, b in zip(mine[:-1], theirs[:-1], strict=True))
    return bool(pairs.is_subset(isl.Map(
        f"{{ [{', '.join(mine)}] -> [{', '.join(theirs)}] : {equal or '0 = 0'} }}")))


def _tensor(program: Program, maker: PlacedCall, taker: PlacedCall) -> tuple[str, str]:
    """What the two have in common, if it can be held."""
    made = {r.tensor for r in maker.call.writes}
    found = [r.tensor for r in taker.call.reads if r.tensor in made]
    if len(found) != 1:
        return "", f"not one tensor goes from {maker.call.name} to {taker.call.name}"
    tensor, touched = program.tensor(found[0]), accesses(program)[found[0]]
    if tensor.role is not Role.scratch or tensor.dtype.size != 4:
        return "", f"{tensor.name} is no scratch of four bytes an element"
    if {(a.node.call.name, a.writes) for a in touched} != \
            {(maker.call.name, True), (taker.call.name, False)} or len(touched) != 2:
        return "", f"others touch {tensor.name}"
    if any(a.data or a.accumulates or a.region.pad or any(isinstance(x, Rows)
           for x in a.region.axes) for a in touched):
        return "", f"{tensor.name} is gathered, padded or accumulated into"
    deps = [d for d in dependences(program).deps if d.tensor == tensor.name and d.kind == "raw"]
    if not all(_in_groups(d.relation) for d in deps):
        return "", "a tile needs tiles of other clusters"
    region = next(a.region for a in touched if a.writes)
    size = tensor.dtype.size
    for e in tile_shape(region, tensor):
        most = bounds(e, lambda _: (0, None))[1]
        size = MOST_BYTES + 1 if most is None else size * max(most, 0)
    if size > MOST_BYTES:
        return "", f"a tile of {tensor.name} may have more than {MOST_BYTES} bytes"
    if share(program, cluster_of(program, tensor.name, taker.call.name)) is None:
        return "", f"{tensor.name} does not have an axis for the members, of one element each"
    return tensor.name, ""
