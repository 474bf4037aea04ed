"""What ops need of extents: no extent is negative, and nothing is picked of too few elements.

The table of ops says what each op needs (`Row.needs`). A need is proved for all tasks and
iterations in which it matters, or refused with the smallest task and extent that break it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..ir.expr import Const, Min, Node, Prod
from ..ir.interval import numeric_bounds
from ..ir.ops import Need, needs_of, operands
from ..ir.program import PlacedCall, Program
from ..ir.tensor import DType, Point
from ..ir.tile import For, Let, SliceOf, Stmt, Store, SubAxis, TileType, Update
from ..ir.walk import free_vars
from .body_bounds import open_loops
from .check_report import Kind, Obligation, Problem, Task, Witness
from .sets.isl_text import NotAffine
from .sets.space import Scope, Side
from .sets.witness import smallest_of


@dataclass(frozen=True)
class _Use:
    """A need, the extents without which it does not matter, and the run-time loops around it."""

    need: Need
    unless_empty: tuple[Node, ...]
    loops: tuple[For, ...]

    @property
    def is_negative(self) -> bool:
        return self.need.least == 0

    @property
    def kind(self) -> Kind:
        return Kind.negative_extent if self.is_negative else Kind.too_few

    def text(self, call: str) -> str:
        does, e = f"the body of call '{call}' {self.need.what}", self.need.extent
        if self.is_negative:
            return f"{does} the extent {e}"
        return f"{does} an axis of extent {e}, which needs {self.need.least}"


def need_problems(program: Program, p: PlacedCall) -> tuple[list[Problem], list[Obligation]]:
    """Needs that some task breaks, or that could not be proved; those of computed extents are
    obligations."""
    problems: list[Problem] = []
    obligations: list[Obligation] = []
    place = p.call.place
    for use in _open_uses(p):
        what, kind = use.text(p.call.name), use.kind
        if _computed(use):
            obligations.append(Obligation(
                f"{what}: a value of the body decides it", place, call=p.call.name))
            continue
        try:
            hit = _breaks(program, p, use)
        except NotAffine:
            problems.append(Problem(
                Kind.unproved, f"{what}: it is not affine", place, kind.error.default_hint))
            continue
        if hit is not None:
            dims, coords = hit
            task = Task(p.call.name, tuple(zip(p.vars, coords, strict=False)))
            problems.append(Problem(
                kind, f"{what} and may have {coords[-1]}", place, kind.error.default_hint,
                Witness(tuple(dims.items()), (task,))))
    return problems, obligations


def _open_uses(p: PlacedCall) -> Iterator[_Use]:
    """Those that the ranges of the dims leave open, each once."""
    # What a region gives is never negative: slices are clipped.
    known = {e for a in p.call.body.args for e in a.type.shape}
    seen: set[_Use] = set()
    for use in _uses(p):
        e, least = use.need.extent, use.need.least
        low, _ = numeric_bounds(e)
        if (low is not None and low >= least) or (use.is_negative and e in known) or use in seen:
            continue
        seen.add(use)
        if use.is_negative:
            known.add(e)
        yield use


def _uses(p: PlacedCall) -> Iterator[_Use]:
    types: dict[int, TileType] = {}

    def walk(stmts: tuple[Stmt, ...], loops: tuple[For, ...]) -> Iterator[_Use]:
        for s in stmts:
            match s:
                case For(var, _, carries, body):
                    types[var] = TileType(DType.i64, ())
                    types.update({i: c.type for c in carries for i in (c.phi, c.out)})
                    yield from walk(body, (*loops, s))
                case Let(id, op, type):
                    types[id] = type
                    for need in needs_of(op, type, [types[x] for x in operands(op)]):
                        yield _use(need, type.shape, loops)
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
        shape: tuple[Node, ...], axes: tuple[SubAxis, ...], part: tuple[Node, ...],
        loops: tuple[For, ...],
    ) -> Iterator[_Use]:
        """An index that the body computes is kept inside its axis, which must not be empty."""
        own = {f"%{f.var}" for f in loops}
        for extent, axis in zip(shape, axes, strict=True):
            if isinstance(axis, Point) and _values(axis.index) - own:
                yield _use(Need(extent, 1, "picks an element of"), part, loops)

    return walk(p.call.body.stmts, ())


def _use(need: Need, shape: tuple[Node, ...], loops: tuple[For, ...]) -> _Use:
    """An element is picked only where the result has elements."""
    open_ = (s for s in shape if not isinstance(s, Const)) if need.least else ()
    return _Use(need, tuple(open_), loops)


def _values(*exprs: Node) -> set[str]:
    return {v for v in free_vars(*exprs) if v.startswith("%")}


def _computed(use: _Use) -> bool:
    own = {f"%{f.var}" for f in use.loops}
    exprs: Iterable[Node] = (use.need.extent, *(f.extent for f in use.loops))
    return bool(_values(*exprs) - own)


Hit = tuple[dict[str, int], tuple[int, ...]]


def _breaks(program: Program, p: PlacedCall, use: _Use) -> Hit | None:
    """The smallest dims and task that break a need; the last coordinate is the extent. What is not
    affine holds if it holds of its parts."""
    try:
        return _affine_breaks(program, p, use)
    except NotAffine:
        parts = _parts(use.need)
        if not parts or any(_breaks(program, p, replace(use, need=part)) for part in parts):
            raise
        return None


def _parts(need: Need) -> tuple[Need, ...]:
    """Needs that together imply one of a product or a minimum; none, if there are none."""
    match need.extent:
        case Prod(factors) if need.least <= 1:
            found = factors
        case Min(a, b):
            found = (a, b)
        case _:
            return ()
    return tuple(replace(need, extent=e) for e in found)


def _affine_breaks(program: Program, p: PlacedCall, use: _Use) -> Hit | None:
    scope, side = Scope(program), Side(p, "a_")
    bound = open_loops(scope, side, use.loops)
    extent = scope.fresh("extent")
    size = scope.text(use.need.extent, side, bound)
    scope.require(f"{extent} = {size}", f"{extent} < {use.need.least}")
    own = set(bound)
    for s in use.unless_empty:
        if not _values(s) - own:
            scope.require(f"{scope.text(s, side, bound)} >= 1")
    return smallest_of(scope, (*side.names, extent))
