"""The number of notifies that each cell gets, as isl counts and as expressions.

Whether it is what waiters expect is decided in count_check.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from ..errors import BadEvent
from ..ir.expr import Const, Node, Prod, Sum, Var, add, product, wrap
from ..ir.plan import Nest, nest_exprs, region_nest
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.tensor import Point, Region
from ..ir.walk import free_vars, loads_of, substitute
from .sets.isl_text import isl_text
from .sets.nests import expr_of
from .sets.space import Scope, cell_map, cell_names

ONE = Const(1)


@dataclass(frozen=True)
class Supply:
    """The notifies of one map of one call, by the coordinates of a cell.

    `exact` is a piecewise affine count on the cells that get any (None: not affine). `closed_form`
    is an expression valid on those cells (None: not found). If run-time data decides whether the
    tasks of a cell exist, `guard` is 1 for the cells that have any, else 0. The product of `sizes`
    is the count."""

    cells: isl.Set
    exact: isl.PwAff | None
    closed_form: Node | None
    guard: Node = ONE
    sizes: tuple[isl.PwAff, ...] = ()


def supply(program: Program, placed: PlacedCall, event: EventTensor, nest: Nest) -> Supply:
    relation = cell_map(program, placed, event, (nest,)).coalesce()
    if loads_of(*nest_exprs(nest)) or not _visits_once(nest):
        return Supply(relation.range(), None, None)
    if relation.is_empty():
        nothing = isl.PwAff.val_on_domain(relation.range(), isl.Val(0))
        return Supply(relation.range(), nothing, Const(0))
    by_form = _count_by_extents(placed, nest)
    if loads_of(*(a.extent for a in placed.axes)):
        kept = {i.name: f"c{k}" for k, i in enumerate(nest.index) if isinstance(i, Var)}
        guard = existence(placed, kept) if by_form is not None else ONE
        return Supply(relation.range(), None, by_form, guard)
    fibre = relation.reverse()
    sizes = box_sizes(fibre)
    if sizes is None:
        return Supply(relation.range(), None, by_form)
    varying = [s for s in sizes if not _is_constant(s)]
    exact = None
    if len(varying) <= 1:
        exact = _product(sizes, fibre.domain())
    names = cell_names(len(event.shape))
    closed_form = by_form
    if closed_form is None:
        closed_form = product([expr_of(program, s, names) for s in sizes])
    return Supply(relation.range(), exact, closed_form, sizes=tuple(sizes))


def _visits_once(nest: Nest) -> bool:
    """True if no cell is visited twice, because every axis is a coordinate of the index."""
    return all(Var(a.var) in nest.index for a in nest.axes)


def existence(placed: PlacedCall, kept: dict[str, str]) -> Node:
    """1 if the kept coordinates of a cell lie in the extents that run-time data gives."""
    names = {**_constant_coords(placed), **{v: Var(c) for v, c in kept.items()}}
    tests = [
        names[a.var] < substitute(a.extent, names)
        for a in placed.axes
        if a.var in kept and loads_of(a.extent)
    ]
    return product(tests)


def _constant_coords(placed: PlacedCall) -> dict[str, Node]:
    """Coordinates with one value, those of loops of one iteration."""
    return {a.var: Const(0) for a in placed.axes if a.extent == ONE}


def box_sizes(fibre: isl.Map) -> list[isl.PwAff] | None:
    """The extents of each output axis as functions of the input, if every image is a box."""
    dims = fibre.dim(isl.dim_type.out)
    box = isl.Map.universe(fibre.get_space()).intersect_domain(fibre.domain())
    sizes = []
    for k in range(dims):
        line = fibre.project_out(isl.dim_type.out, k + 1, dims - k - 1)
        line = line.project_out(isl.dim_type.out, 0, k)
        lo, hi = line.lexmin_pw_multi_aff(), line.lexmax_pw_multi_aff()
        if not _has_no_gaps(line, lo, hi):
            return None
        wide = line.insert_dims(isl.dim_type.out, 1, dims - k - 1)
        box = box.intersect(wide.insert_dims(isl.dim_type.out, 0, k))
        size = hi.get_pw_aff(0).sub(lo.get_pw_aff(0))
        sizes.append(size.add_constant_val(isl.Val(1)).coalesce())
    return sizes if box.is_equal(fibre) else None


def _has_no_gaps(line: isl.Map, lo: isl.PwMultiAff, hi: isl.PwMultiAff) -> bool:
    hull = isl.Map.from_pw_multi_aff(lo).apply_range(isl.Map("{ [x] -> [y] : y >= x }"))
    below = isl.Map.from_pw_multi_aff(hi).apply_range(isl.Map("{ [x] -> [y] : y <= x }"))
    return bool(hull.intersect(below).is_equal(line))


def same_product(program: Program, count: Node, supply: Supply, rank: int) -> bool:
    """True if the factors of `count` equal the sizes of the supply one by one. isl has no product
    of two varying factors, but it has each factor."""
    if not supply.sizes:
        return False
    left = [target_pw(program, f, rank) for f in _factors(count)]
    right = list(supply.sizes)
    for size in supply.sizes:
        match = next((f for f in left if _equal_on(f, size, supply.cells)), None)
        if match is not None and not _is_constant(size):
            left.remove(match)
            right.remove(size)
    rest = [_product(x, supply.cells) for x in (left, right)]
    varying = [f for f in (*left, *right) if not _is_constant(f)]
    return not varying and _equal_on(rest[0], rest[1], supply.cells)


def _factors(count: Node) -> list[Node]:
    match count:
        case Prod(factors):
            return list(factors)
        case Sum(((atom, scale),), 0):
            return [Const(scale), *_factors(atom)]
        case _:
            return [count]


def _equal_on(a: isl.PwAff, b: isl.PwAff, cells: isl.Set) -> bool:
    return bool(cells.is_subset(a.eq_set(b)))


def _is_constant(size: isl.PwAff) -> bool:
    return bool(size.n_piece() == 1 and size.is_cst())


def _product(sizes: list[isl.PwAff], domain: isl.Set) -> isl.PwAff:
    total = isl.PwAff.val_on_domain(domain, isl.Val(1))
    for s in sizes:
        total = total.mul(s)
    return total.coalesce()


def _count_by_extents(placed: PlacedCall, nest: Nest) -> Node | None:
    """The count by form, if cell coordinates are distinct task coordinates or numbers: the product
    of the other extents."""
    if not nest.is_single:
        return None
    varying = [i for i in nest.index if not isinstance(i, Const)]
    if not all(isinstance(i, Var) for i in varying) or len(set(varying)) != len(varying):
        return None
    kept = {i.name: Var(f"c{k}") for k, i in enumerate(nest.index) if isinstance(i, Var)}
    if not set(kept) <= set(placed.vars):
        return None
    known: dict[str, Node] = {**_constant_coords(placed), **kept}
    if any(free_vars(axis.extent) - set(known) for axis in placed.axes):
        return None
    return product([substitute(a.extent, known) for a in placed.axes if a.var not in kept])


def notify_count(program: Program, event: EventTensor) -> Node:
    """The count of an event that is declared without one: the sum of its notifies, in closed
    form."""
    total: Node = wrap(0)
    covered = None
    for p in program.calls:
        for region in p.call.notifies or ():
            if region.tensor != event.name:
                continue
            found = supply(program, p, event, region_nest(region, event))
            if _is_irregular(region) or found.closed_form is None:
                raise BadEvent(
                    f"the count of event {event.name} cannot be derived from the notifies of "
                    f"{p.call.name}", place=p.call.place, hint="declare it with count=",
                )
            if covered is not None and not covered.is_equal(found.cells):
                raise BadEvent(
                    f"the cells of event {event.name} get notifies from different calls",
                    place=p.call.place, hint="declare the count with count=",
                )
            covered = found.cells
            total = add(total, found.closed_form)
    return total


def _is_irregular(region: Region) -> bool:
    return any(loads_of(a.index) for a in region.axes if isinstance(a, Point)) or any(
        not isinstance(a, Point) for a in region.axes
    )


def target_pw(program: Program, count: Node, rank: int) -> isl.PwAff:
    """The count as a piecewise affine function of the cell."""
    scope = Scope(program)
    scope.require(f"x = {isl_text(count, scope)}")
    return isl.PwMultiAff.from_map(scope.map(cell_names(rank), ("x",))).get_pw_aff(0)
