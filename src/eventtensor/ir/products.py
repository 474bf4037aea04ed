"""Matrix products of a body that use up one read argument: where its rows are read once, K along
memory, page after page. `product_of` finds them; the stream and its code both ask.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from . import tile as t
from .expr import Const, Node
from .expr import product as product_expr
from .ops import operands
from .tensor import DType

PANEL = 16  # rows of a panel: one side of a tensor-core tile
BLOCK = 8  # rows and columns of a block: of 16 bits each, a matrix as tensor cores take it
MOST_SPAN = 128  # columns
BUNDLES = (1, 2, 4)  # panels whose spans may lie together: the last are those of one wgmma
_STEP = 32  # columns that a warp takes at once

Groups = tuple[tuple[int, ...], ...]  # for each axis of a value, the axes of the argument in it


@dataclass(frozen=True, slots=True)
class Product:
    """Value `id` is the argument times value `other`, or the reverse if not `left`. `hidden` values
    only lead from the argument to the product. If it is packed, the argument is ([bundles,] spans,
    panels of a bundle, 2 halves of a panel's rows, blocks, BLOCK rows, BLOCK columns), `span` are
    the columns of a span, which lie together in each panel, and `bundle` the panels whose spans lie
    together; if it has plain rows, `span` is 0."""

    id: int
    left: bool
    other: int
    hidden: frozenset[int]
    rows: Node
    k: Node
    columns: Node
    span: int
    bundle: int = 1

    @property
    def packed(self) -> bool:
        return self.span > 0


def span_of(columns: int) -> int:
    """The columns of a span where rows have so many: the most that divide them, if possible in
    steps that a warp takes."""
    for step in (_STEP, BLOCK):
        fit = [n for n in range(step, MOST_SPAN + 1, step) if columns % n == 0]
        if fit:
            return fit[-1]
    raise ValueError(columns)


def product_of(body: t.Body, arg: int) -> Product | None:
    """The one use of a read argument, if that is a product at the top level of the body."""
    uses = Counter(x for s in t.all_stmts(body.stmts) for x in _operands(s))
    types: dict[int, t.TileType] = {}
    at: int | None = None
    groups: Groups = ()
    hidden: set[int] = set()
    for s in body.stmts:
        if not isinstance(s, t.Let):
            continue
        types[s.id] = s.type
        if isinstance(s.op, t.Arg) and s.op.arg == arg:
            if at is not None or uses[s.id] != 1:
                return None
            at, groups = s.id, tuple((k,) for k in range(len(s.type.shape)))
        elif at is not None and at in operands(s.op):
            if isinstance(s.op, t.MatMul):
                if not uses[s.id]:
                    return None
                return _product(s, at, groups, hidden, types, body.args[arg].type.shape)
            moved = _moved(s, groups, types[at])
            if moved is None or uses[s.id] != 1:
                return None
            groups = moved
            hidden.add(at)
            at = s.id
    return None


def _operands(s: t.Stmt) -> tuple[int, ...]:
    match s:
        case t.Let(_, op, _):
            return operands(op)
        case t.For(_, _, carries, _):
            return tuple(x for c in carries for x in (c.init, c.next))
        case t.Store(_, _, value) | t.Accumulate(_, value):
            return (value,)


def _moved(s: t.Let, groups: Groups, old: t.TileType) -> Groups | None:
    match s.op:
        case t.Transpose(_, perm):
            return tuple(groups[p] for p in perm)
        case t.Reshape():
            return merged_axes(groups, old.shape, s.type.shape)
        case _:
            return None


def merged_axes(groups: Groups, old: tuple[Node, ...], new: tuple[Node, ...]) -> Groups | None:
    """Axes of a reshape that only joins neighbours."""
    out: list[tuple[int, ...]] = []
    k = 0
    for n in new:
        taken: list[int] = []
        start = k
        while k < len(old) and product_expr(old[start:k]) != n:
            taken += groups[k]
            k += 1
        if product_expr(old[start:k]) != n:
            return None
        out.append(tuple(taken))
    return tuple(out) if k == len(old) else None


def _product(
    s: t.Let, at: int, groups: Groups, hidden: set[int], types: dict[int, t.TileType],
    shape: tuple[Node, ...],
) -> Product | None:
    assert isinstance(s.op, t.MatMul)
    if s.op.a == s.op.b or len(groups) != 2:
        return None
    left = s.op.a == at
    rows, k = groups if left else (groups[1], groups[0])
    other = s.op.b if left else s.op.a
    packing = _packing(rows, k, shape)
    if packing is None:
        return None
    m, n = s.type.shape
    return Product(
        s.id, left, other, frozenset({*hidden, at}), m if left else n,
        types[at].shape[1 if left else 0], n if left else m, *packing,
    )


def _packing(
    rows: tuple[int, ...], k: tuple[int, ...], shape: tuple[Node, ...]
) -> tuple[int, int] | None:
    """Span and bundle of packed rows; (0, 1) for plain rows, None if they are neither."""
    if (rows, k) == ((0,), (1,)):
        return 0, 1
    if (rows, k) not in (((1, 2, 4), (0, 3, 5)), ((0, 2, 3, 5), (1, 4, 6))):
        return None
    bundle, halves, blocks, *block = shape[-5:]
    if [halves, *block] != [Const(PANEL // BLOCK), Const(BLOCK), Const(BLOCK)]:
        return None
    match bundle, blocks:
        case Const(n), Const(across) if n in BUNDLES:
            return across * BLOCK, n
        case _:
            return None


def narrow_dtype(body: t.Body, id: int) -> DType | None:
    """bf16 or f16 if every element of the value is one (a stored argument, or just rounded)."""
    match _origin(body, id):
        case t.Arg(arg):
            dtype = body.args[arg].storage
        case t.Cast(_, dtype):
            pass
        case _:
            return None
    return dtype if dtype in (DType.bf16, DType.f16) else None


def argument_of(body: t.Body, id: int) -> int | None:
    """The read argument of which a value is a view."""
    found = _origin(body, id)
    return found.arg if isinstance(found, t.Arg) else None


def _origin(body: t.Body, id: int) -> t.Op | None:
    """What made the elements of a value, before they were only moved."""
    made = {s.id: s.op for s in t.all_stmts(body.stmts) if isinstance(s, t.Let)}
    while id in made:
        match made[id]:
            case t.Transpose(x, _) | t.Reshape(x) | t.Broadcast(x) | t.SliceOf(x, _):
                id = x
            case op:
                return op
    return None
