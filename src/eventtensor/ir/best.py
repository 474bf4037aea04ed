"""Tensors that say where the largest of a row lie: few numbers, found from few others, which
whoever needs them may find again as soon as these are there, rather than wait to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import tile as t
from .expr import Const, Var, product
from .layout import divisor, layout_of
from .program import PlacedCall, Program
from .tensor import DType, Point, Region, Slice, tile_shape

_LANES = 32  # of the warp that finds them: each has a part of the row, and gives one at most
_MOST = 1024  # elements that they look at

Lets = Mapping[int, t.Let]


@dataclass(frozen=True, slots=True)
class Best:
    """The places of the `count` largest in a row of `size` elements, descending, the lowest first
    among equal ones. Each is a sum, in order, of `parts` elements of `region`, `apart` from each
    other."""

    region: Region
    parts: int
    size: int
    apart: int
    count: int


def writer_of(program: Program, tensor: str) -> PlacedCall | None:
    """Who writes a tensor, if that is one task (of each iteration), and it writes one region."""
    found = [p for p in program.calls for r in (*p.call.accumulates, *p.call.writes)
             if r.tensor == tensor]
    return found[0] if len(found) == 1 and not found[0].call.grid else None


def best_of(program: Program, tensor: str) -> Best | None:
    """The numbers of a tensor, if its one writer finds them so: in each iteration a row."""
    p = writer_of(program, tensor)
    return None if p is None else _stored(program, p, tensor)


def _stored(program: Program, p: PlacedCall, tensor: str) -> Best | None:
    body, reads = p.call.body, len(p.call.reads)
    lets = {s.id: s for s in body.stmts if isinstance(s, t.Let)}
    stores = [s for s in t.all_stmts(body.stmts) if isinstance(s, t.Store)
              and p.call.regions[s.arg].tensor == tensor]
    if len(stores) != 1 or stores[0].value not in lets:
        return None
    found = _whole(lets, lets[stores[0].value])
    if not isinstance(found.op, t.TopK) or not found.op.indices or found.op.k > _LANES:
        return None
    if not _is_row(program, p, p.call.regions[stores[0].arg], found.op.k):
        return None
    terms = _terms(lets, lets[found.op.x]) or []
    arg = terms[0][0] if terms else reads
    if terms != [(arg, k) for k in range(len(terms))]:
        return None
    best = None if arg >= reads else _in_memory(
        program, p.call.reads[arg], len(terms), found.op.k)
    row = product(lets[found.op.x].type.shape)
    return best if best is not None and row == Const(best.size) else None


def _is_row(program: Program, p: PlacedCall, region: Region, count: int) -> bool:
    """True for the row of this iteration, all of it: what is found k-th is number k there."""
    tensor = program.tensor(region.tensor)
    *outer, last = region.axes
    whole = tile_shape(region, tensor)[-1:] == tensor.shape[-1:] == (Const(count),)
    return outer == [Point(Var(lp.var)) for lp in p.loops] and isinstance(last, Slice) and whole


def _in_memory(program: Program, region: Region, parts: int, count: int) -> Best | None:
    """Rows one after the other, or a constant distance apart; lanes look at pairs."""
    source = program.tensor(region.tensor)
    layout, all_ = layout_of(region, source), product(tile_shape(region, source))
    if layout is None or source.dtype is not DType.f32 or not isinstance(all_, Const):
        return None
    size = all_.value // parts
    apart = layout.stride if layout.rows == Const(parts) else Const(size)
    dense = layout.row == (all_ if layout.rows == Const(1) else Const(size))
    if not dense or not isinstance(apart, Const) or not 0 < all_.value <= _MOST:
        return None
    even = divisor(layout.offset) % 2 == 0 and (parts == 1 or apart.value % 2 == 0)
    if not even or size % (2 * _LANES) != 0:
        return None
    return Best(region, parts, size, apart.value, count)


def _whole(lets: Lets, s: t.Let) -> t.Let:
    """Through what only leaves axes of one element away, or adds some."""
    match s.op:
        case t.SliceOf(x, _) | t.Reshape(x) if product(s.type.shape) == product(lets[x].type.shape):
            return _whole(lets, lets[x])
    return s


def _terms(lets: Lets, s: t.Let) -> list[tuple[int, int]] | None:
    """The rows of an argument that add up to a row, from the left: (argument, row)."""
    match s.op:
        case t.Binary("add", a, b):
            first, last = _terms(lets, lets[a]), _row(lets, lets[b])
            return None if first is None or last is None else [*first, last]
    row = _row(lets, s)
    return None if row is None else [row]


def _row(lets: Lets, s: t.Let) -> tuple[int, int] | None:
    """One row of an argument: number k of those along its first axis, or all of it."""
    s = _whole(lets, s)
    match s.op:
        case t.Arg(arg):
            return arg, 0
        case t.SliceOf(x, (Point(Const(k)), *rest)):
            of, shape = lets[x].op, lets[x].type.shape[1:]
            whole = all(a == Slice(Const(0), n) or (a, n) == (Point(Const(0)), Const(1))
                        for a, n in zip(rest, shape, strict=True))
            return (of.arg, k) if whole and isinstance(of, t.Arg) else None
    return None
