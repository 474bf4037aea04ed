"""Groups of push grids that share a queue, and the shifts of static grids.

A call may join the group before it if everything its tasks must see dispatched is decided inside
the group and the iteration, and nothing it evaluates on entry is produced inside the group.
"""

from __future__ import annotations

import islpy as isl

from ..analysis.event_maps import Events, EventUse
from ..ir.expr import Const, Node, Var, add, mul
from ..ir.plan import Policy, Schedule, ScheduleKind
from ..ir.program import PlacedCall, Program
from ..ir.walk import free_vars
from .select import Choice
from .tile_ownership import one_for_one, same_tiles, tiles_of


def schedules(
    program: Program, events: Events, choices: dict[str, Choice]
) -> dict[str, Schedule]:
    out: dict[str, Schedule] = {}
    members: list[PlacedCall] = []
    group = -1
    shifts = _shifts(program)
    for p in program.calls:
        c = choices[p.call.name]
        pending: tuple[str, ...] = ()
        if c.kind is ScheduleKind.push:
            joined = _join(events, members, p)
            if joined is None:
                members, group = [], group + 1
            pending = joined or ()
            members.append(p)
        else:
            members = []
        number = group if c.kind is ScheduleKind.push else -1
        policy, shift, reason = _owner(program, events, out, p, c, shifts[p.call.name])
        out[p.call.name] = Schedule(c.kind, policy, reason, shift, number, pending)
    return out


def _owner(
    program: Program, events: Events, before: dict[str, Schedule], p: PlacedCall, c: Choice,
    balanced: Node,
) -> tuple[Policy, Node, str]:
    """Policy, shift and reason of a call; `before` are the schedules of earlier ones."""
    if c.kind is ScheduleKind.static and c.policy is Policy.round_robin:
        return c.policy, Const(0), c.reason
    if c.kind is not ScheduleKind.static or c.policy is Policy.balanced:
        return c.policy, balanced, c.reason
    producer = _tile_by_tile(program, events, before, p)
    if producer is None:
        return Policy.balanced, balanced, c.reason
    why = f"tile for tile from {producer}: on the worker that made its tile"
    return Policy.affine, before[producer].shift, why


def _tile_by_tile(
    program: Program, events: Events, before: dict[str, Schedule], p: PlacedCall
) -> str | None:
    """The one call whose tiles those of `p` wait for, one for one, if it is static."""
    pairs = [
        (w, n) for w in events.waits if w.node == p.call.name
        for n in events.notifies if n.event.name == w.event.name
    ]
    makers = {n.node for _, n in pairs}
    if len(makers) != 1 or not makers <= set(before):
        return None
    q = program.placed(makers.pop())
    near = q.position[:-1] == p.position[:-1] and same_tiles(q, p)
    if not near or before[q.call.name].kind is not ScheduleKind.static:
        return None
    return q.call.name if all(one_for_one(events, w, n, len(p.loops)) for w, n in pairs) else None


def _join(events: Events, members: list[PlacedCall], p: PlacedCall) -> tuple[str, ...] | None:
    """Pending events if `p` can join, None if it starts a new group."""
    if not members or members[-1].position[:-1] != p.position[:-1]:
        return None
    inside = {m.call.name for m in members}
    producers: dict[str, set[str]] = {}
    for n in events.notifies:
        producers.setdefault(n.event.name, set()).add(n.node)
    pending = []
    for w in events.waits:
        by = producers.get(w.event.name, set())
        if w.node.startswith(p.call.name + "#") and by & inside:
            return None
        if w.node != p.call.name or not by & inside:
            continue
        found = {_iteration(events, w, n, p) for n in events.notifies
                 if n.event.name == w.event.name}
        if found == {"same"} and by <= inside:
            pending.append(w.event.name)
        elif found != {"other"}:
            return None
    return tuple(dict.fromkeys(pending))


def _iteration(events: Events, wait: EventUse, notify: EventUse, p: PlacedCall) -> str:
    """Whether the wait reaches notifiers of the same loop iteration, of others, or of both."""
    pairs = events.map(notify).apply_range(events.map(wait).reverse())
    depth = len(p.loops)
    names = [f"x{k}" for k in range(pairs.dim(isl.dim_type.in_))]
    to = [names[k] if k < depth else f"y{k}" for k in range(pairs.dim(isl.dim_type.out))]
    same = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(to)}] }}")
    if pairs.is_subset(same):
        return "same"
    return "other" if pairs.is_disjoint(same) else "both"


def _shifts(program: Program) -> dict[str, Node]:
    """For each call: tiles of the grids before it in the same loop body, and, if their number does
    not depend on the loop, of earlier iterations. Grids without a closed form count as none."""
    bodies: dict[tuple[int, ...], list[PlacedCall]] = {}
    for p in program.calls:
        bodies.setdefault(p.position[:-1], []).append(p)
    out: dict[str, Node] = {}
    for body in bodies.values():
        so_far: Node = Const(0)
        for p in body:
            out[p.call.name] = so_far
            tiles = tiles_of(p)
            so_far = add(so_far, tiles if tiles is not None else Const(0))
        loops = body[0].loops
        if loops and loops[-1].var not in free_vars(so_far):
            earlier = mul(Var(loops[-1].var), so_far)
            for p in body:
                out[p.call.name] = add(out[p.call.name], earlier)
    return out
