"""Versions of a tensor: when two tasks that read one element see the same value.

It also has program order as isl text.
"""

from __future__ import annotations

from ...ir.program import PlacedCall, Program


def common_loops(a: PlacedCall, b: PlacedCall) -> int:
    """The number of outer loops that two calls share."""
    depth = 0
    for x, y in zip(a.loops, b.loops, strict=False):
        if x is not y or a.position[depth] != b.position[depth]:
            break
        depth += 1
    return depth


def writers(program: Program, tensor: str) -> list[PlacedCall]:
    return [
        p
        for p in program.calls
        if any(r.tensor == tensor for r in (*p.call.writes, *p.call.accumulates))
    ]


def equal_loops(
    program: Program, tensor: str, first: tuple[PlacedCall, bool], second: tuple[PlacedCall, bool]
) -> tuple[str, ...] | None:
    """The loop variables in which tasks of two calls must agree to see the same values of `tensor`.
    Empty: they always do. None: a writer comes between them. The flags say whether a task reads
    after its own writes."""
    (a, a_done), (b, b_done) = sorted((first, second), key=lambda s: s[0].position)
    depth = common_loops(a, b)
    needed: set[str] = set()
    for w in writers(program, tensor):
        shared = min(common_loops(a, w), common_loops(b, w))
        needed.update(loop.var for loop in a.loops[:shared])
        if a.call is b.call:
            if w.call is a.call and a_done != b_done:
                return None
        elif w.call is a.call and a_done and len(a.position) == depth + 1:
            continue
        elif (w.call is b.call and b_done) or (shared == depth and _between(a, b, w, depth)):
            return None
    return tuple(loop.var for loop in a.loops if loop.var in needed)


def _between(a: PlacedCall, b: PlacedCall, w: PlacedCall, depth: int) -> bool:
    at, first, last = w.position[depth], a.position[depth], b.position[depth]
    if at == last and len(b.position) == depth + 1:
        return False
    return first <= at <= last


def before_text(a: PlacedCall, b: PlacedCall, pa: str, pb: str) -> str:
    """isl text: task a comes before task b in program order. Tiles of one call are ordered by loops
    alone."""
    depth = common_loops(a, b)
    cases = [loops_before_text(a, depth, pa, pb)]
    if depth < len(a.position) and a.position[depth] < b.position[depth]:
        equal = [f"{pa}{loop.var} = {pb}{loop.var}" for loop in a.loops[:depth]]
        cases.append("(" + (" and ".join(equal) or "0 = 0") + ")")
    return "(" + " or ".join(cases) + ")"


def loops_before_text(a: PlacedCall, depth: int, pa: str, pb: str) -> str:
    """isl text: task a is in an earlier iteration of the first `depth` loops than task b."""
    return _lex([loop.var for loop in a.loops[:depth]], [], pa, pb)


def tile_before_text(a: PlacedCall) -> str:
    """isl text: within one call and one iteration, tile a_ comes before tile b_ by coordinate."""
    return _lex([axis.var for axis in a.call.grid], [], "a_", "b_")


def _lex(names: list[str], equal: list[str], pa: str, pb: str) -> str:
    cases = []
    for name in names:
        cases.append(" and ".join([*equal, f"{pa}{name} < {pb}{name}"]))
        equal = [*equal, f"{pa}{name} = {pb}{name}"]
    return "(" + (" or ".join(f"({c})" for c in cases) or "0 = 1") + ")"
