"""Reductions along an axis, and who shares an element of the result: a thread alone, lazily in the
loop that reads it, or the sixteen threads of a half-warp, at once."""

from __future__ import annotations

from ..ir import tile as t
from ..ir.body_uses import Uses
from ..ir.expr import Const, Node, Var, product
from ..kernel_ir import scalar_values as v
from ..kernel_ir import statements as st
from ..kernel_ir.distributions import HalfWarp
from ..kernel_ir.scopes import Scope, Space
from .builder import Builder, by_value, rounded
from .operands import Operands, Target, stored_once
from .tiles import Tile, long_axes, of_view, scalar

# With few results most threads would wait for the memory that a few read: up to this many elements
# are brought into the arena by all of them first.
_FEW, _STAGED = 16, 8192
_SHORT, _WIDE = 16, 64  # elements of a reduced axis, and of the last one


def shared_by_half_warps(shape: tuple[Node, ...], axis: int, threads: int) -> bool:
    """Not where threads have an element of their own and it is made of few, nor where neighbours
    would read far apart although enough of them could each fold one."""
    if threads == 1:
        return False
    reduced, last = shape[axis], shape[-1]
    results = product(shape[:axis] + shape[axis + 1 :])
    many = not isinstance(results, Const) or results.value >= threads
    if many and isinstance(reduced, Const) and reduced.value <= _SHORT:
        return False
    wide = isinstance(last, Const) and last.value >= _WIDE
    return axis == len(shape) - 1 or not wide


def direct_targets(b: Builder, operands: Operands, uses: Uses) -> dict[int, Target]:
    """Where folds by half-warps go that are only stored."""
    body = b.call.body
    types = {s.id: s.type for s in t.all_stmts(body.stmts) if isinstance(s, t.Let)}

    def shared(s: t.Let) -> bool:
        if not isinstance(s.op, t.Reduce | t.ArgMax) or not s.type.shape:
            return False
        axis = s.op.axis if isinstance(s.op, t.Reduce) else len(s.type.shape)
        return s.op.x in types and shared_by_half_warps(types[s.op.x].shape, axis, b.threads)

    folds = {s.id for s in body.stmts if isinstance(s, t.Let) and shared(s)}
    found = {}
    for s in body.stmts:
        if not isinstance(s, t.Store) or s.value not in folds:
            continue
        target = operands.targets[s.arg]
        alone = stored_once(body, s.arg) and not operands.overwritten(s.arg)
        if (
            target.home is None
            and not target.view.tables
            and alone
            and uses.count[s.value] == 1
            and s.value not in uses.named
        ):
            found[s.value] = target
    return found


def fold(
    b: Builder, id: int, op: str, x: Tile, axis: int, type: t.TileType, target: Target | None
) -> Tile:
    """`target` takes the result, if nothing else does."""
    extent = x.type.shape[axis]
    b.extent(extent)
    if op == "argmax" and b.debug and by_value(extent):
        b.emit(st.Check(Const(0), extent))

    def folded(x: Tile, shared: Scope, index: v.Index) -> v.Fold:
        at = (*index[:axis], Var(f"$k{id}"), *index[axis:])
        return v.Fold(op, shared, f"$k{id}", extent, x.at(at))

    if not shared_by_half_warps(x.type.shape, axis, b.threads):
        return Tile(type, lambda index: folded(x, Scope.thread, index), cheap=False)
    x = _near(b, id, x, type)
    if not long_axes(type) and target is None:
        result = folded(x, Scope.half_warp, (Const(0),) * len(type.shape))
        b.emit(st.Let(f"%{id}", v.Broadcast(Scope.half_warp, result)))
        return scalar(v.Name(f"%{id}", type.dtype), type)
    view = b.own(f"v{id}", type) if target is None else target.view
    index, axes = b.indices(type.shape)
    found = v.Name(f"$v{id}_found", type.dtype)
    store = st.Store(view, index, rounded(found, view.buffer.dtype))
    b.emit(
        st.Elements(
            axes,
            HalfWarp(),
            (
                st.Let(found.name, folded(x, Scope.half_warp, index)),
                st.Elect(Scope.half_warp, (store,)),
            ),
        )
    )
    return of_view(view, type)


def _near(b: Builder, id: int, x: Tile, type: t.TileType) -> Tile:
    """x in the arena, if few results are made of many elements that lie elsewhere."""
    size, results = product(x.type.shape), product(type.shape)
    spaces = {e.view.buffer.space for e in x.reads()}
    few = isinstance(results, Const) and results.value < _FEW
    if spaces == {Space.arena} or not isinstance(size, Const) or not few:
        return x
    if not _FEW * 4 <= size.value <= _STAGED:
        return x
    return of_view(b.held(f"v{id}_all", x), x.type)
