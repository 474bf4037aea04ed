"""What must be ordered: consecutive conflicts between tasks, exact for all dims in range.

Where the elements are known, isl's dependence flow gives last write -> read, last write -> write
and reads since the last write -> write. Where run-time data decides, every earlier access that may
touch the same element counts (a may-write hides nothing).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import islpy as isl

from ..ir.program import PlacedCall, Program
from ..ir.tensor import Tensor, region_exprs
from ..ir.walk import loads_of
from ..progress import doing
from .access import Access, accesses, is_header, nodes
from .definite_assignment import assigns_all
from .sets.space import Scope, Side, sides_of
from .sets.versions import common_loops, loops_before_text, tile_before_text


@dataclass(frozen=True)
class Dependence:
    """`relation`: source task -> sink task. kind: raw, war or waw. `data`: run-time data decides,
    so the relation holds what may happen; `later` then marks conflicts with a later iteration."""

    source: PlacedCall
    sink: PlacedCall
    kind: str
    tensor: str
    relation: isl.Map
    data: bool
    accesses: tuple[Access, Access] | None = None
    later: bool = False


@dataclass(frozen=True)
class Orphan:
    """Tasks -> elements that they read and nobody wrote before; with `maybe`, elements that only
    run-time data can have written."""

    access: Access
    relation: isl.Map
    maybe: bool = False


@dataclass(frozen=True)
class Dependences:
    deps: tuple[Dependence, ...]
    orphans: tuple[Orphan, ...]


@lru_cache(maxsize=16)
def dependences(program: Program) -> Dependences:
    found = [dependences_of(program, t) for t in program.tensors]
    return Dependences(tuple(d for f in found for d in f.deps),
                       tuple(o for f in found for o in f.orphans))


def dependences_of(program: Program, tensor: Tensor) -> Dependences:
    """Those of one tensor."""
    doing(f"who reads and writes {tensor.name}")
    found = accesses(program)[tensor.name]
    deps: list[Dependence] = []
    if not any(a.writes for a in found):
        lost = [Orphan(a, element_map(program, a)) for a in found]
    elif any(a.data for a in found):
        deps, lost = _pairwise(program, tensor.name, found), _data_orphans(program, found)
    else:
        deps, lost = _flow(program, tensor.name, found)
    # what somebody accumulates into starts at 0
    defined = tensor.role.starts_defined or any(a.accumulates for a in found)
    return Dependences(tuple(deps), () if defined else tuple(lost))


def element_map(program: Program, access: Access) -> isl.Map:
    """Task -> elements it touches (for run-time data: may touch)."""
    scope, side = Scope(program), Side(access.node, "a_")
    elements = tuple(f"e{k}" for k in range(len(access.region.axes)))
    scope.domain(side)
    scope.elements(access.region, side, elements)
    scope.finish()
    return scope.map(side.names, elements)


# ---- known elements: dependence flow -------------------------------------------------------


def _flow(
    program: Program, tensor: str, found: list[Access]
) -> tuple[list[Dependence], list[Orphan]]:
    number = {n.call.name: k for k, n in enumerate(nodes(program))}
    reads = _union(program, number, [a for a in found if not a.writes or a.accumulates])
    writes = _union(program, number, [a for a in found if a.writes])
    # tiles that accumulate in any order stand at one time: none of them hides another
    mixed = _union(program, number, [a for a in found if _any_order(a)])
    final = _union(program, number, [a for a in found if a.writes and not _any_order(a)])
    order = _schedule(number, found)
    raw = _run_flow(reads, final, mixed, order)
    other = _run_flow(writes, final, reads.union(mixed), order)
    deps = []
    for kind, relation in (("raw", raw.get_may_dependence()), ("", other.get_may_dependence())):
        deps += _split(program, number, tensor, kind, relation, found)
    if all(writes_all(program, a) for a in found if a.writes):
        return deps, _orphans(program, number, found, raw.get_must_no_source())
    return deps, _data_orphans(program, found)


def writes_all(program: Program, a: Access) -> bool:
    """False if the body may leave elements of the region as they were."""
    return a.accumulates or not a.node.call.body.args or assigns_all(program, a.node, a.arg)


def _any_order(a: Access) -> bool:
    return a.accumulates and a.node.call.unordered


def _run_flow(
    sink: isl.UnionMap, must: isl.UnionMap, may: isl.UnionMap, order: isl.UnionMap
) -> isl.UnionFlow:
    info = isl.UnionAccessInfo.from_sink(sink).set_must_source(must).set_may_source(may)
    return info.set_schedule_map(order).compute_flow()


def _union(program: Program, number: dict[str, int], found: list[Access]) -> isl.UnionMap:
    total = isl.UnionMap("{ }")
    for a in found:
        name = f"S{number[a.node.call.name]}"
        m = element_map(program, a).set_tuple_name(isl.dim_type.in_, name)
        total = total.union(isl.UnionMap.from_map(m.set_tuple_name(isl.dim_type.out, "T")))
    return total


def _schedule(number: dict[str, int], found: list[Access]) -> isl.UnionMap:
    """Time stamps: position, loop, position, .., then the tile where accumulation orders tiles."""
    involved = {a.node.call.name: a.node for a in found}
    depth = max(len(p.loops) for p in involved.values())
    tiles = max(len(p.call.grid) for p in involved.values())
    ordered = {a.node.call.name for a in found if a.accumulates and not a.node.call.unordered}
    maps = isl.UnionMap("{ }")
    for name, p in involved.items():
        side = Side(p, "a_")
        stamp: list[str] = []
        for k in range(depth + 1):
            stamp.append(str(p.position[k]) if k < len(p.position) else "0")
            if k < depth:
                stamp.append(f"a_{p.loops[k].var}" if k < len(p.loops) else "0")
        coords = [f"a_{v}" for v in p.call.coords] if name in ordered else []
        stamp += coords + ["0"] * (tiles - len(coords))
        text = f"{{ S{number[name]}[{', '.join(side.names)}] -> [{', '.join(stamp)}] }}"
        maps = maps.union(isl.UnionMap(text))
    return maps


def _maps_of(union: isl.UnionMap) -> list[isl.Map]:
    found: list[isl.Map] = []
    union.foreach_map(found.append)
    return sorted(found, key=lambda m: (m.get_tuple_name(isl.dim_type.in_),
                                        m.get_tuple_name(isl.dim_type.out) or ""))


def _split(
    program: Program, number: dict[str, int], tensor: str, kind: str, relation: isl.UnionMap,
    found: list[Access],
) -> list[Dependence]:
    by_number = {number[p.call.name]: p for p in nodes(program)}
    writer = {a.node.call.name for a in found if a.writes}
    out = []
    for m in _maps_of(relation):
        a = by_number[int(m.get_tuple_name(isl.dim_type.in_)[1:])]
        b = by_number[int(m.get_tuple_name(isl.dim_type.out)[1:])]
        named = kind or ("waw" if a.call.name in writer else "war")
        out.append(Dependence(a, b, named, tensor, _plain(m), False))
    return out


def _plain(m: isl.Map) -> isl.Map:
    clean = m.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)
    return clean.coalesce()


def _orphans(
    program: Program, number: dict[str, int], found: list[Access], missing: isl.UnionMap
) -> list[Orphan]:
    out = []
    for m in _maps_of(missing):
        k = int(m.get_tuple_name(isl.dim_type.in_)[1:])
        for a in found:
            if number[a.node.call.name] == k and not a.writes:
                here = _plain(m).intersect(element_map(program, a))
                if not here.is_empty():
                    out.append(Orphan(a, here))
                    break
    return out


def _data_orphans(program: Program, found: list[Access]) -> list[Orphan]:
    """Reads of a tensor some of whose writes may not happen: run-time data or bodies decide."""
    number = {n.call.name: k for k, n in enumerate(nodes(program))}
    reads = _union(program, number, [a for a in found if not a.writes])
    if reads.is_empty():
        return []
    maybe = [a for a in found if a.writes and (
        a.data or _any_order(a) or not writes_all(program, a))]
    sure = [a for a in found if a.writes and a not in maybe]
    flow = _run_flow(reads, _union(program, number, sure), _union(program, number, maybe),
                     _schedule(number, found))
    never = flow.get_must_no_source()
    perhaps = flow.get_may_no_source().subtract(never)
    return _orphans(program, number, found, never) + [
        replace(o, maybe=True) for o in _orphans(program, number, found, perhaps)
    ]


# ---- run-time data: pairs that may conflict ------------------------------------------------


def _pairwise(program: Program, tensor: str, found: list[Access]) -> list[Dependence]:
    deps = []
    for a in found:
        for b in found:
            if not (a.writes or b.writes):
                continue
            kind = "raw" if not b.writes else "waw" if a.writes else "war"
            for later, relation in ((False, _same_iteration(program, a, b)),
                                    (True, _later_iteration(program, a, b))):
                if relation is not None and not relation.is_empty():
                    deps.append(Dependence(
                        a.node, b.node, kind, tensor, relation, a.data or b.data,
                        None if later else (a, b), later))
    return deps


def _same_iteration(program: Program, a: Access, b: Access) -> isl.Map | None:
    """Conflicts in one iteration of all loops that the two calls share."""
    depth = common_loops(a.node, b.node)
    in_order = a.accumulates and b.accumulates and not a.node.call.unordered
    if a.node is not b.node:
        if a.node.position[depth] >= b.node.position[depth]:
            return None
    elif not in_order:
        return None
    scope, sides = conflict(program, a, b, depth)
    scope.finish()
    if a.node is b.node:
        scope.require(tile_before_text(a.node))
    return scope.map(sides[0].names, sides[1].names)


def _later_iteration(program: Program, a: Access, b: Access) -> isl.Map | None:
    """Conflicts with a later iteration. Where values decide which tiles meet, all may: they are of
    different iterations, so nothing relates them."""
    depth = common_loops(a.node, b.node)
    if depth == 0:
        return None
    loops = a.node.loops[:depth]
    scope, sides = conflict(program, a, b)
    scope.require(loops_before_text(a.node, depth, "a_", "b_"))
    if not loads_of(*region_exprs(a.region), *region_exprs(b.region)):
        return scope.map(sides[0].names, sides[1].names)
    first, second = (tuple(side.name(lp.var) for lp in loops) for side in sides)
    pairs = scope.map(first, second, hide=sides)
    if pairs.is_empty():
        return None
    wide, sides = Scope(program), sides_of(a.node, b.node)
    for side in sides:
        wide.domain(side)
    wide.finish()
    tiles = wide.map(sides[0].names, sides[1].names)
    extra = [len(side.names) - depth for side in sides]
    lifted = pairs.add_dims(isl.dim_type.in_, extra[0]).add_dims(isl.dim_type.out, extra[1])
    return tiles.intersect(lifted).coalesce()


def conflict(
    program: Program, a: Access, b: Access, shared: int = 0
) -> tuple[Scope, tuple[Side, Side]]:
    """Two tasks, in the same iteration of their `shared` outermost loops, that touch one element.
    The caller finishes the scope, or leaves the run-time values unrelated."""
    scope, sides = Scope(program), sides_of(a.node, b.node, shared)
    elements = tuple(scope.fresh("e") for _ in a.region.axes)
    for access, side in zip((a, b), sides, strict=True):
        scope.domain(side)
        scope.elements(access.region, side, elements)
    return scope, sides


def same_call_conflicts(program: Program) -> list[tuple[Access, Access, isl.Map]]:
    """Pairs of different tiles of one call, in one iteration, that conflict."""
    out = []
    for found in accesses(program).values():
        for k, a in enumerate(found):
            for b in found[: k + 1]:
                if a.node is not b.node or not (a.writes or b.writes) or is_header(a.node):
                    continue
                if a.accumulates and b.accumulates:
                    continue
                scope, sides = conflict(program, a, b, len(a.node.loops))
                scope.finish()
                scope.require("(" + (" or ".join(
                    f"a_{c} != b_{c}" for c in a.node.call.coords) or "0 = 1") + ")")
                relation = scope.map(sides[0].names, sides[1].names)
                if not relation.is_empty():
                    out.append((a, b, relation))
    return out


def same_task_conflicts(program: Program) -> list[tuple[Access, Access, isl.Map]]:
    """Pairs of written arguments of one call, and the tasks in which both are one element. Nothing
    says which comes last. Additions in any order may meet: all of them count."""
    out = []
    for found in accesses(program).values():
        written = [a for a in found if a.writes]
        for k, a in enumerate(written):
            for b in written[:k]:
                if a.node is not b.node or (_any_order(a) and _any_order(b)):
                    continue
                scope, sides = conflict(program, b, a, len(a.node.loops))
                scope.finish()
                scope.require(*(f"a_{c} = b_{c}" for c in a.node.call.coords))
                relation = scope.map(sides[0].names, sides[1].names)
                if not relation.is_empty():
                    out.append((b, a, relation))
    return out
