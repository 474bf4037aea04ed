"""How many bytes of temporaries a task may need, over dims alone: the size of a worker's arena.

An extent of a tile is bounded by the ranges of coordinates, loops and declared bounds of run-time
data; a clipped extent (a minimum) by whichever side is known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from ...errors import UnboundedGrid, UnboundedTile
from ...ir import tile as t
from ...ir.expr import Const, Dim, Max, Min, Node, Sum, add, floordiv, maximum, minimum, mul
from ...ir.plan import Stream
from ...ir.program import PlacedCall, Program
from ...ir.walk import rebuild
from ..limits import Ends, Limits

_BYTES = {
    "float": 4, "int32_t": 4, "int64_t": 8, "bool": 1, "uint8_t": 1, "et::bf16": 2, "et::f16": 2,
}
_ALIGN = 64
# Rows that a product sums up in one pass, by its columns: all of them, or some.
_ROUND = {"et::MOST_COLUMNS": 128, "et::SOME_COLUMNS": 256}


class TileLimits(Limits):
    """Limits that forgive an unknown side of a minimum: tiles begin at 0 and end at the other."""

    def ends(self, e: Node) -> Ends:
        if not isinstance(e, Min):
            return super().ends(e)
        sides = [x for x in (self._known(e.a), self._known(e.b)) if x is not None]
        if not sides:
            raise UnboundedGrid(f"no bound is known for '{e}'", place=self.program.name)
        if len(sides) == 1:
            return minimum(0, sides[0][0]), sides[0][1]
        return minimum(sides[0][0], sides[1][0]), minimum(sides[0][1], sides[1][1])

    def _known(self, e: Node) -> Ends | None:
        try:
            return self.ends(e)
        except UnboundedGrid:
            return None


def room(program: Program, placed: PlacedCall, taken: list[tuple[Node, str]]) -> Node:
    """Bytes for all of `taken` (extent, element type) of one task."""
    limits = _scope(program, placed)
    total: Node = Const(0)
    for extent, element in taken:
        try:
            count = maximum(limits.upper(extent), 1)
        except UnboundedGrid as e:
            raise UnboundedTile(
                f"a tile of '{placed.call.name}' has {extent} elements: {e.message}",
                place=placed.call.place,
            ) from e
        size = add(mul(count, Const(_BYTES[element])), Const(_ALIGN - 1))
        total = add(total, mul(floordiv(size, _ALIGN), Const(_ALIGN)))
    return total


def most_columns(program: Program, placed: PlacedCall, columns: Node) -> Node:
    """A bound of a product's columns over dims; if there is none, more than any that counts."""
    try:
        return _scope(program, placed).upper(columns)
    except UnboundedGrid:
        return Const(1 << 30)


def opens_beside(products: Sequence[Stream], s: Stream) -> str | None:
    """For how many columns lines of a lone product are through before its result is put away."""
    if len(products) > 1:
        return None
    return next((most for most, rows in _ROUND.items() if s.rows <= rows), None)


def below(e: Node, others: Collection[Node]) -> bool:
    """True if it is seen that a bound is never more than one of the others; none is negative."""
    match e:
        case Const(v):
            return v <= 0
        case Max(a, b):
            return below(a, others) and below(b, others)
        case Min(a, b):
            return below(a, others) or below(b, others)
        case _:
            return e in others


def where_few(size: Node, columns: Node, few: int) -> list[Node]:
    """A size where `columns`, a dim or a sum of dims, are at most `few`, as each of the dims has as
    many as it can, and the others the least."""
    terms = columns.terms if isinstance(columns, Sum) else ((columns, 1),)
    dims = [d for d, c in terms if isinstance(d, Dim) and d.min >= 0 and c >= 1]
    if len(dims) < len(terms):
        return [size]
    least = sum(d.min for d in dims)

    def leaf(large: Dim, e: Node) -> Node | None:
        if not isinstance(e, Dim) or e not in dims:
            return None
        most = max(e.min, few - least + e.min) if e == large else e.min
        return Dim(e.name, e.min, most if e.max is None else min(e.max, most))

    return [rebuild(size, partial(leaf, d)) for d in dims]


def _scope(program: Program, placed: PlacedCall) -> TileLimits:
    """The ranges of coordinates, of loops in the body and of scalars that are index expressions."""
    ranges: dict[str, Ends] = {}
    limits = TileLimits(program, ranges)  # sees what is added below
    for a in placed.axes:
        _loop(limits, ranges, a.var, a.extent)
    for s in t.all_stmts(placed.call.body.stmts):
        match s:
            case t.For(var, extent, _, _):
                _loop(limits, ranges, f"%{var}", extent)
            case t.Let(id, t.Index(expr), _):
                found = limits._known(expr)
                if found is not None:
                    ranges[f"%{id}"] = found
            case _:
                pass
    return limits


def _loop(limits: TileLimits, ranges: dict[str, Ends], var: str, extent: Node) -> None:
    found = limits._known(extent)
    if found is not None:
        ranges[var] = (Const(0), maximum(add(found[1], Const(-1)), 0))
