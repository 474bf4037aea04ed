"""Proves the requirements of ops on extents: none is negative, and no axis is too short.

The table of ops has the requirements (`OpSpec.requirements`). One is proved for all tasks and
iterations in which it matters, or refuted by the smallest task and extent that break it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..ir.expr import Const, Min, Node, Prod
from ..ir.interval import numeric_bounds
from ..ir.ops import ExtentRequirement, operands, requirements_of
from ..ir.program import PlacedCall, Program
from ..ir.tensor import DType, Point
from ..ir.tile import For, Let, SliceOf, Stmt, Store, SubAxis, TileType, Update
from ..ir.walk import free_vars
from .body_bounds import enter_loops
from .check_report import Kind, Obligation, Problem, Task, Witness
from .sets.isl_text import NotAffine
from .sets.space import Scope, Side
from .sets.witness import smallest_of


@dataclass(frozen=True)
class _Site:
    """A requirement in a body, and the run-time loops around it. It does not matter if one of the
    extents `unless_empty` is 0."""

    requirement: ExtentRequirement
    unless_empty: tuple[Node, ...]
    loops: tuple[For, ...]

    @property
    def is_negative(self) -> bool:
        return self.requirement.min_extent == 0

    @property
    def kind(self) -> Kind:
        return Kind.negative_extent if self.is_negative else Kind.too_few

    def text(self, call: str) -> str:
        does, e = f"the body of call '{call}' {self.requirement.what}", self.requirement.extent
        if self.is_negative:
            return f"{does} the extent {e}"
        return f"{does} an axis of extent {e}, which needs {self.requirement.min_extent}"


def requirement_problems(program: Program, p: PlacedCall) -> tuple[list[Problem], list[Obligation]]:
    """Requirements that some task breaks, or that are unproved. Those on computed extents are
    obligations."""
    problems: list[Problem] = []
    obligations: list[Obligation] = []
    place = p.call.place
    for site in _open_sites(p):
        what, kind = site.text(p.call.name), site.kind
        if _is_computed(site):
            obligations.append(
                Obligation(f"{what}: a value of the body decides it", place, call=p.call.name)
            )
            continue
        try:
            hit = _smallest_break(program, p, site)
        except NotAffine:
            problems.append(
                Problem(Kind.unproved, f"{what}: it is not affine", place, kind.error.default_hint)
            )
            continue
        if hit is not None:
            dims, coords = hit
            task = Task(p.call.name, tuple(zip(p.vars, coords, strict=False)))
            problems.append(
                Problem(
                    kind,
                    f"{what} and may have {coords[-1]}",
                    place,
                    kind.error.default_hint,
                    Witness(tuple(dims.items()), (task,)),
                )
            )
    return problems, obligations


def _open_sites(p: PlacedCall) -> Iterator[_Site]:
    """The sites that the ranges of the dims do not prove, each once."""
    # The extents of regions are never negative, because slices are clipped.
    known = {e for a in p.call.body.args for e in a.type.shape}
    seen: set[_Site] = set()
    for site in _sites(p):
        e, least = site.requirement.extent, site.requirement.min_extent
        low, _ = numeric_bounds(e)
        if (low is not None and low >= least) or (site.is_negative and e in known) or site in seen:
            continue
        seen.add(site)
        if site.is_negative:
            known.add(e)
        yield site


def _sites(p: PlacedCall) -> Iterator[_Site]:
    types: dict[int, TileType] = {}

    def walk(stmts: tuple[Stmt, ...], loops: tuple[For, ...]) -> Iterator[_Site]:
        for s in stmts:
            match s:
                case For(var, _, carries, body):
                    types[var] = TileType(DType.i64, ())
                    types.update({i: c.type for c in carries for i in (c.phi, c.out)})
                    yield from walk(body, (*loops, s))
                case Let(id, op, type):
                    types[id] = type
                    for requirement in requirements_of(op, type, [types[x] for x in operands(op)]):
                        yield _site(requirement, type.shape, loops)
                    if isinstance(op, SliceOf):
                        yield from points(types[op.x].shape, op.axes, type.shape, loops)
                    elif isinstance(op, Update):
                        yield from points(types[op.x].shape, op.axes, types[op.value].shape, loops)
                case Store(arg, axes, value):
                    shape = p.call.body.args[arg].type.shape
                    yield from points(shape, axes, types[value].shape, loops)
                case _:
                    pass

    def points(
        shape: tuple[Node, ...],
        axes: tuple[SubAxis, ...],
        part: tuple[Node, ...],
        loops: tuple[For, ...],
    ) -> Iterator[_Site]:
        """An index that the body computes is clamped to its axis, which must not be empty."""
        own = {f"%{f.var}" for f in loops}
        for extent, axis in zip(shape, axes, strict=True):
            if isinstance(axis, Point) and _body_values(axis.index) - own:
                yield _site(ExtentRequirement(extent, 1, "picks an element of"), part, loops)

    return walk(p.call.body.stmts, ())


def _site(requirement: ExtentRequirement, shape: tuple[Node, ...], loops: tuple[For, ...]) -> _Site:
    """A minimum of 1 or more matters only if the result has elements."""
    open_ = (s for s in shape if not isinstance(s, Const)) if requirement.min_extent else ()
    return _Site(requirement, tuple(open_), loops)


def _body_values(*exprs: Node) -> set[str]:
    return {v for v in free_vars(*exprs) if v.startswith("%")}


def _is_computed(site: _Site) -> bool:
    own = {f"%{f.var}" for f in site.loops}
    exprs: Iterable[Node] = (site.requirement.extent, *(f.extent for f in site.loops))
    return bool(_body_values(*exprs) - own)


Hit = tuple[dict[str, int], tuple[int, ...]]


def _smallest_break(program: Program, p: PlacedCall, site: _Site) -> Hit | None:
    """The smallest dims and task that break a requirement; the last coordinate is the extent. A
    product or minimum holds if its parts do."""
    try:
        return _affine_break(program, p, site)
    except NotAffine:
        parts = _parts(site.requirement)
        if not parts or any(
            _smallest_break(program, p, replace(site, requirement=part)) for part in parts
        ):
            raise
        return None


def _parts(requirement: ExtentRequirement) -> tuple[ExtentRequirement, ...]:
    """Requirements that together imply one on a product or a minimum; empty if there are none."""
    match requirement.extent:
        case Prod(factors) if requirement.min_extent <= 1:
            found = factors
        case Min(a, b):
            found = (a, b)
        case _:
            return ()
    return tuple(replace(requirement, extent=e) for e in found)


def _affine_break(program: Program, p: PlacedCall, site: _Site) -> Hit | None:
    scope, side = Scope(program), Side(p, "a_")
    bound = enter_loops(scope, side, site.loops)
    extent = scope.fresh("extent")
    size = scope.text(site.requirement.extent, side, bound)
    scope.require(f"{extent} = {size}", f"{extent} < {site.requirement.min_extent}")
    own = set(bound)
    for s in site.unless_empty:
        if not _body_values(s) - own:
            scope.require(f"{scope.text(s, side, bound)} >= 1")
    return smallest_of(scope, (*side.names, extent))
