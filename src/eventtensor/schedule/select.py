"""Choose a schedule for each call, by the user's word or by what the grid is, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..config import Options
from ..errors import BadOption
from ..ir.interval import DeclaredBounds, numeric_bounds
from ..ir.plan import Policy, ScheduleKind
from ..ir.products import product_of
from ..ir.program import Call, Item, Loop, PlacedCall, Program, has_data_extent
from ..ir.tensor import Role
from ..ir.tile import For, all_stmts
from ..ir.walk import free_vars, loads_of
from ..targets.target import CudaTarget

UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Choice:
    """`affine` means: where the grid has such a producer (push_groups.py), else balanced."""

    kind: ScheduleKind
    policy: Policy
    reason: str


_NAMED = {
    "static": (ScheduleKind.static, Policy.balanced),
    "static:balanced": (ScheduleKind.static, Policy.balanced),
    "static:round_robin": (ScheduleKind.static, Policy.round_robin),
    "static:affine": (ScheduleKind.static, Policy.affine),
    "ticket": (ScheduleKind.ticket, Policy.balanced),
    "push": (ScheduleKind.push, Policy.balanced),
}


def select(program: Program, options: Options, target: CudaTarget) -> dict[str, Choice]:
    """One choice for each call. Pairs name calls; the others are `auto`."""
    schedule = options.schedule
    named = dict(schedule) if not isinstance(schedule, str) else {}
    default = schedule if isinstance(schedule, str) else "auto"
    gpu = target if options.target == "cuda" and options.stream else None
    unknown = set(named) - {p.call.name for p in program.calls}
    if unknown:
        raise BadOption(f"schedule names unknown calls: {', '.join(sorted(unknown))}")
    ragged = {p.call.name for p in program.calls if has_data_extent(p.call)}
    return {
        p.call.name: _choice(program, p, named.get(p.call.name, default), ragged, gpu)
        for p in program.calls
    }


def _choice(
    program: Program, p: PlacedCall, asked: str, ragged: set[str], gpu: CudaTarget | None
) -> Choice:
    if asked == "auto":
        return _auto(program, p, ragged, gpu)
    if asked not in _NAMED:
        known = ", ".join(["auto", *_NAMED])
        raise BadOption(f"unknown schedule {asked!r}", hint=f"one of {known}")
    return Choice(*_NAMED[asked], "asked for")


def _auto(
    program: Program, p: PlacedCall, ragged: set[str], gpu: CudaTarget | None
) -> Choice:
    """On a GPU a producer warp may run ahead of the tasks."""
    ahead = gpu is not None
    if p.call.name in ragged:
        if ahead and _takes_weights(program, p.call):
            why = "run-time extents: balance by claiming, weights come ahead of the claimed tile"
            return Choice(ScheduleKind.ticket, Policy.balanced, why)
        if ahead and p.call.prefetches_next_tile:
            why = "run-time extents: balance by claiming, a task begins with the next tile's data"
            return Choice(ScheduleKind.ticket, Policy.balanced, why)
        if gpu is not None and _most_tiles(program, p.call) <= gpu.multiprocessors \
                and not _uneven(p.call):
            why = "run-time extents, but never more tiles than workers: nothing to balance"
            return Choice(ScheduleKind.static, Policy.balanced, why)
        near = _neighbours(program, p) & ragged
        if near:
            others = ", ".join(sorted(near))
            why = f"run-time extents, next to {others}: consumers start as cells fill"
            return Choice(ScheduleKind.push, Policy.balanced, why)
        return Choice(ScheduleKind.ticket, Policy.balanced, "run-time extents: balance by claiming")
    if _uneven(p.call):
        why = "tiles differ in cost: balance by claiming"
        return Choice(ScheduleKind.ticket, Policy.balanced, why)
    why = "uniform tiles: no claim to pay, leftovers balanced across grids"
    return Choice(ScheduleKind.static, Policy.affine, why)


def _takes_weights(program: Program, call: Call) -> bool:
    """True if a product of the body takes a weight, which a producer can load where it knows the
    tiles ahead: not those of a queue."""
    return call.cuda_body is None and any(
        program.tensor(r.tensor).role is Role.weight and product_of(call.body, k) is not None
        for k, r in enumerate(call.reads)
    )


def _most_tiles(program: Program, call: Call) -> int:
    """Of a grid, whatever the run-time data is."""
    known = DeclaredBounds(program).known_numbers
    most = [numeric_bounds(a.extent, known)[1] for a in call.grid]
    return prod(UNBOUNDED if n is None else n for n in most)


def _uneven(call: Call) -> bool:
    """True if a loop in the body runs for a number of steps that differs between tiles."""
    for s in all_stmts(call.body.stmts):
        if isinstance(s, For):
            names = free_vars(s.extent)
            if loads_of(s.extent) or names & set(call.coords) or any(n[0] == "%" for n in names):
                return True
    return False


def _neighbours(program: Program, p: PlacedCall) -> set[str]:
    siblings = [q for q in program.calls if q.position[:-1] == p.position[:-1]]
    at = p.position[-1]
    return {q.call.name for q in siblings if abs(q.position[-1] - at) == 1}


def mark_pushed(program: Program, choices: dict[str, Choice]) -> Program:
    """The same program, with the calls that push chose marked (see ir.program.Call)."""

    def mark(items: tuple[Item, ...]) -> tuple[Item, ...]:
        out: list[Item] = []
        for item in items:
            if isinstance(item, Loop):
                out.append(replace(item, body=mark(item.body)))
            else:
                pushed = choices[item.name].kind is ScheduleKind.push
                out.append(replace(item, pushed=pushed))
        return tuple(out)

    return replace(program, body=mark(program.body))
