"""How many bytes of temporaries a task may need, over dims alone: the size of a worker's arena.

An extent of a tile is bounded by the ranges of coordinates, loops and declared bounds of run-time
data; a clipped extent (a minimum) by whichever side is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from ...errors import UnboundedTile
from ...ir import tile as t
from ...ir.expr import Const, Dim, Max, Min, Node, Sum, add, floordiv, maximum, mul
from ...ir.interval import DeclaredBounds, symbolic_bounds
from ...ir.plan import Stream
from ...ir.program import PlacedCall, Program
from ...ir.walk import rebuild

_BYTES = {
    "float": 4, "int32_t": 4, "int64_t": 8, "bool": 1, "uint8_t": 1, "et::bf16": 2, "et::f16": 2,
}
_ALIGN = 64
# Rows that a product sums up in one pass, by its columns: all of them, or some.
_ROUND = {"et::N128": 128, "et::N64": 256}


def room(program: Program, placed: PlacedCall, taken: Iterable[tuple[Node, str]]) -> Node:
    """Bytes for all of `taken` (extent, element type) of one task."""
    scope = _scope(program, placed)
    total: Node = Const(0)
    for extent, element in taken:
        count = scope.upper(extent)
        if count is None:
            raise UnboundedTile(
                f"a tile of '{placed.call.name}' has {extent} elements, which nothing bounds",
                place=placed.call.place)
        size = add(mul(maximum(count, 1), Const(_BYTES[element])), Const(_ALIGN - 1))
        total = add(total, mul(floordiv(size, _ALIGN), Const(_ALIGN)))
    return total


def most_columns(program: Program, placed: PlacedCall, columns: Node) -> Node:
    """A bound of a product's columns over dims; if there is none, more than any that counts."""
    found = _scope(program, placed).upper(columns)
    return Const(1 << 30) if found is None else found


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


def _scope(program: Program, placed: PlacedCall) -> DeclaredBounds:
    """The ranges of coordinates, of loops in the body and of scalars that are index expressions."""
    scope = DeclaredBounds(program)
    for a in placed.axes:
        scope.add_counter(a.var, a.extent)
    for s in t.all_stmts(placed.call.body.stmts):
        match s:
            case t.For(var, extent, _, _):
                scope.add_counter(f"%{var}", extent)
            case t.Let(id, t.Index(expr), _):
                scope.ranges[f"%{id}"] = symbolic_bounds(expr, scope.known)
            case _:
                pass
    return scope
