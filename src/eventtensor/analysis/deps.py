"""The dependences between tasks: consecutive conflicts, exact for all dims in range.

Where the elements are known, isl's dependence flow gives last write -> read, last write -> write
and reads since the last write -> write. Where run-time data decides, every earlier access that may
touch the same element counts, because a possible write hides nothing.
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
    """`relation` maps source tasks to sink tasks; `kind` is raw, war or waw. If run-time data
    decides (`is_data_dependent`), the relation has all possible conflicts, and `is_later_iteration`
    marks those with a later iteration."""

    source: PlacedCall
    sink: PlacedCall
    kind: str
    tensor: str
    relation: isl.Map
    is_data_dependent: bool
    accesses: tuple[Access, Access] | None = None
    is_later_iteration: bool = False


@dataclass(frozen=True)
class Orphan:
    """Reads without a producer: tasks -> elements that no earlier task writes. With `is_possible`,
    run-time data decides whether one writes them."""

    access: Access
    relation: isl.Map
    is_possible: bool = False


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
    """The dependences of one tensor."""
    doing(f"who reads and writes {tensor.name}")
    found = accesses(program)[tensor.name]
    deps: list[Dependence] = []
    if not any(a.writes for a in found):
        lost = [Orphan(a, element_map(program, a)) for a in found]
    elif any(a.is_data_dependent for a in found):
        deps, lost = (
            _pairwise_dependences(program, tensor.name, found),
            _possible_orphans(program, found),
        )
    else:
        deps, lost = _flow_dependences(program, tensor.name, found)
    # a tensor that a task accumulates into starts at 0
    defined = tensor.role.starts_defined or any(a.accumulates for a in found)
    return Dependences(tuple(deps), () if defined else tuple(lost))


def element_map(program: Program, access: Access) -> isl.Map:
    """Task -> elements that it touches, or by run-time data may touch."""
    scope, side = Scope(program), Side(access.node, "a_")
    elements = tuple(f"e{k}" for k in range(len(access.region.axes)))
    scope.domain(side)
    scope.elements(access.region, side, elements)
    scope.finish()
    return scope.map(side.names, elements)


# ---- known elements: dependence flow -------------------------------------------------------


def _flow_dependences(
    program: Program, tensor: str, found: list[Access]
) -> tuple[list[Dependence], list[Orphan]]:
    number = {n.call.name: k for k, n in enumerate(nodes(program))}
    reads = _union_map(program, number, [a for a in found if not a.writes or a.accumulates])
    writes = _union_map(program, number, [a for a in found if a.writes])
    # tiles that accumulate in any order have one time stamp: none of them hides another
    mixed = _union_map(program, number, [a for a in found if _is_unordered(a)])
    final = _union_map(program, number, [a for a in found if a.writes and not _is_unordered(a)])
    order = _schedule(number, found)
    raw = _compute_flow(reads, final, mixed, order)
    other = _compute_flow(writes, final, reads.union(mixed), order)
    deps = []
    for kind, relation in (("raw", raw.get_may_dependence()), ("", other.get_may_dependence())):
        deps += _dependences_of_flow(program, number, tensor, kind, relation, found)
    if all(assigns_region(program, a) for a in found if a.writes):
        return deps, _orphans(program, number, found, raw.get_must_no_source())
    return deps, _possible_orphans(program, found)


def assigns_region(program: Program, a: Access) -> bool:
    """False if the body may leave elements of the region unassigned."""
    return a.accumulates or not a.node.call.body.args or assigns_all(program, a.node, a.arg)


def _is_unordered(a: Access) -> bool:
    return a.accumulates and a.node.call.unordered


def _compute_flow(
    sink: isl.UnionMap, must: isl.UnionMap, may: isl.UnionMap, order: isl.UnionMap
) -> isl.UnionFlow:
    info = isl.UnionAccessInfo.from_sink(sink).set_must_source(must).set_may_source(may)
    return info.set_schedule_map(order).compute_flow()


def _union_map(program: Program, number: dict[str, int], found: list[Access]) -> isl.UnionMap:
    total = isl.UnionMap("{ }")
    for a in found:
        name = f"S{number[a.node.call.name]}"
        m = element_map(program, a).set_tuple_name(isl.dim_type.in_, name)
        total = total.union(isl.UnionMap.from_map(m.set_tuple_name(isl.dim_type.out, "T")))
    return total


def _schedule(number: dict[str, int], found: list[Access]) -> isl.UnionMap:
    """Time stamps: position, loop, position, .. and the tile, where accumulation orders tiles."""
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


def _dependences_of_flow(
    program: Program,
    number: dict[str, int],
    tensor: str,
    kind: str,
    relation: isl.UnionMap,
    found: list[Access],
) -> list[Dependence]:
    by_number = {number[p.call.name]: p for p in nodes(program)}
    writer = {a.node.call.name for a in found if a.writes}
    out = []
    for m in _maps_of(relation):
        a = by_number[int(m.get_tuple_name(isl.dim_type.in_)[1:])]
        b = by_number[int(m.get_tuple_name(isl.dim_type.out)[1:])]
        named = kind or ("waw" if a.call.name in writer else "war")
        out.append(Dependence(a, b, named, tensor, _without_tuple_names(m), False))
    return out


def _without_tuple_names(m: isl.Map) -> isl.Map:
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
                here = _without_tuple_names(m).intersect(element_map(program, a))
                if not here.is_empty():
                    out.append(Orphan(a, here))
                    break
    return out


def _possible_orphans(program: Program, found: list[Access]) -> list[Orphan]:
    """Orphans of a tensor of which run-time data or bodies decide some writes."""
    number = {n.call.name: k for k, n in enumerate(nodes(program))}
    reads = _union_map(program, number, [a for a in found if not a.writes])
    if reads.is_empty():
        return []
    maybe = [
        a
        for a in found
        if a.writes and (a.is_data_dependent or _is_unordered(a) or not assigns_region(program, a))
    ]
    sure = [a for a in found if a.writes and a not in maybe]
    flow = _compute_flow(
        reads,
        _union_map(program, number, sure),
        _union_map(program, number, maybe),
        _schedule(number, found),
    )
    never = flow.get_must_no_source()
    perhaps = flow.get_may_no_source().subtract(never)
    return _orphans(program, number, found, never) + [
        replace(o, is_possible=True) for o in _orphans(program, number, found, perhaps)
    ]


# ---- run-time data: pairs that may conflict ------------------------------------------------


def _pairwise_dependences(program: Program, tensor: str, found: list[Access]) -> list[Dependence]:
    deps = []
    for a in found:
        for b in found:
            if not (a.writes or b.writes):
                continue
            kind = "raw" if not b.writes else "waw" if a.writes else "war"
            for later, relation in ((False, _same_iteration(program, a, b)),
                                    (True, _later_iteration(program, a, b))):
                if relation is not None and not relation.is_empty():
                    deps.append(
                        Dependence(
                            a.node,
                            b.node,
                            kind,
                            tensor,
                            relation,
                            a.is_data_dependent or b.is_data_dependent,
                            None if later else (a, b),
                            later,
                        )
                    )
    return deps


def _same_iteration(program: Program, a: Access, b: Access) -> isl.Map | None:
    """Conflicts in one iteration of all common loops."""
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
    """Conflicts with a later iteration. Where values decide which tiles conflict, all tiles may,
    because nothing relates values of different iterations."""
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
    """Two tasks that touch one element, in the same iteration of their `shared` outermost loops.
    The caller finishes the scope, or leaves the run-time values unrelated."""
    scope, sides = Scope(program), sides_of(a.node, b.node, shared)
    elements = tuple(scope.fresh("e") for _ in a.region.axes)
    for access, side in zip((a, b), sides, strict=True):
        scope.domain(side)
        scope.elements(access.region, side, elements)
    return scope, sides


def same_call_conflicts(program: Program) -> list[tuple[Access, Access, isl.Map]]:
    """Conflicts between different tiles of one call in one iteration."""
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
    """Pairs of written arguments of one call, and the tasks in which both write one element. Their
    order is undefined. Additions in any order are no conflict."""
    out = []
    for found in accesses(program).values():
        written = [a for a in found if a.writes]
        for k, a in enumerate(written):
            for b in written[:k]:
                if a.node is not b.node or (_is_unordered(a) and _is_unordered(b)):
                    continue
                scope, sides = conflict(program, b, a, len(a.node.loops))
                scope.finish()
                scope.require(*(f"a_{c} = b_{c}" for c in a.node.call.coords))
                relation = scope.map(sides[0].names, sides[1].names)
                if not relation.is_empty():
                    out.append((b, a, relation))
    return out
