"""Products of a body that are one run: alike, of one column each, with slices of one value that
follow one another. One loop does them all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from ...ir import tile as t
from ...ir.expr import Const, Load, Node, add, mul
from ...ir.plan import Stream, StreamKind
from ...ir.products import BUNDLES, PANEL, Product, product_of
from ...ir.program import Call
from ...ir.tensor import Axis, Point, Region, Slice
from ...targets.cost_model import StreamCosts


@dataclass(frozen=True, slots=True)
class Run:
    """Values `ids` are products with slice after slice of value `base` along `axis`. So many are
    `joined`: pages have `chunk` bytes of the rows of each, piece after piece."""

    ids: tuple[int, ...]
    args: tuple[int, ...]
    base: int
    axis: int
    joined: int
    chunk: int

    def of(self, s: Stream) -> Stream:
        """The stream of one of the products as pages of the run have it."""
        return (
            replace(s, bundle=self.joined, k_bytes_per_stage=self.chunk) if self.joined > 1 else s
        )


@dataclass(frozen=True, slots=True)
class _Sliced:
    """One index of one axis of a value, in any shape."""

    base: int
    axis: int
    at: int

    def behind(self, other: _Sliced) -> bool:
        return (self.base, self.axis, self.at) == (other.base, other.axis, other.at + 1)


_Taken = tuple[Product, Stream, _Sliced]


def runs_of(
    call: Call, streams: tuple[Stream, ...], costs: StreamCosts
) -> tuple[Run, ...]:
    """All runs of two products or more that use up pages in the order of the streams. In place
    only those are, whose sums would not be the same one by one."""
    body = call.body
    found: list[list[_Taken]] = [[]]
    for s in streams:
        product = (
            product_of(body, s.arg) if s.kind is StreamKind.packed and not s.is_b_streamed else None
        )
        x = _sliced(body, product) if product is not None else None
        if product is None or x is None:
            found.append([])
            continue
        row = product.k.value * body.args[s.arg].storage.size if isinstance(product.k, Const) else 0
        if found[-1] and not (_goes_on(found[-1][-1], (product, s, x))
                              and costs.stages_whole_operand(len(found[-1]) + 1, row)):
            found.append([])
        found[-1].append((product, s, x))
    runs = (_run(call, run, costs) for run in found if len(run) > 1)
    return tuple(r for r in runs if r.joined > 1 or streams[0].is_streamed)


def _run(call: Call, run: list[_Taken], costs: StreamCosts) -> Run:
    """Products of a panel each are joined where their pages have more bytes then."""
    (p, s, x), *_ = run
    args = tuple(s.arg for _, s, _ in run)
    assert isinstance(p.k, Const)
    spans, span = p.k.value // p.span, p.span * call.body.args[s.arg].storage.size
    alone = s.rows > PANEL or stepped(tuple(call.regions[k] for k in args), Const(0)) is None
    joined = max((n for n in BUNDLES if len(run) % n == 0 and (n == 1 or not alone)),
                 key=lambda n: (n * costs.stage_spans(spans, n), -n))
    return Run(tuple(p.id for p, _, _ in run), args, x.base, x.axis, joined,
               costs.stage_spans(spans, joined) * span)


def _goes_on(last: _Taken, next: _Taken) -> bool:
    (p, s, x), (q, r, y) = last, next
    sizes = (p.left, p.rows, p.k, p.columns, p.span, p.bundle, s.k_bytes_per_stage)
    return y.behind(x) and sizes == (
        q.left,
        q.rows,
        q.k,
        q.columns,
        q.span,
        q.bundle,
        r.k_bytes_per_stage,
    )


def _sliced(body: t.Body, product: Product) -> _Sliced | None:
    """The other side, if it is one column, a slice in the order of its elements, and the product
    has whole bundles."""
    whole = isinstance(product.rows, Const) and product.rows.value % (PANEL * product.bundle) == 0
    if not whole or product.columns != Const(1):
        return None
    made = {s.id: s for s in body.stmts if isinstance(s, t.Let)}
    at = made.get(product.other)
    while at is not None:
        match at.op:
            case t.Reshape(x):
                at = made.get(x)
            case t.Transpose(x, _) if sum(n != Const(1) for n in at.type.shape) <= 1:
                at = made.get(x)
            case t.SliceOf(x, axes) if x in made:
                points = [_Sliced(x, k, a.index.value) for k, a in enumerate(axes)
                          if isinstance(a, Point) and isinstance(a.index, Const)]
                rest = [Slice(Const(0), n) for n in made[x].type.shape]
                apart = sum(a != b for a, b in zip(axes, rest, strict=True))
                return points[0] if len(points) == apart == 1 else None
            case _:
                return None
    return None


# ---- where their operands lie ----------------------------------------------------------------


def stepped(regions: tuple[Region, ...], k: Node) -> Region | None:
    """The k-th of some regions, if only constants differ, which grow evenly."""
    first, *rest = regions
    if any(r.tensor != first.tensor or len(r.axes) != len(first.axes) for r in rest):
        return None
    axes = [_axis(some, k) for some in zip(*(r.axes for r in regions), strict=True)]
    if any(a is None for a in axes) or any(r.pad is not None for r in regions):
        return None
    return Region(first.tensor, tuple(a for a in axes if a is not None))


def _axis(axes: tuple[Axis, ...], k: Node) -> Axis | None:
    if all(a == axes[0] for a in axes):
        return axes[0]
    if all(isinstance(a, Point) for a in axes):
        index = _node(tuple(a.index for a in axes if isinstance(a, Point)), k)
        return None if index is None else Point(index)
    if all(isinstance(a, Slice) for a in axes):
        start = _node(tuple(a.start for a in axes if isinstance(a, Slice)), k)
        stop = _node(tuple(a.stop for a in axes if isinstance(a, Slice)), k)
        return None if start is None or stop is None else Slice(start, stop)
    return None


def _node(nodes: tuple[Node, ...], k: Node) -> Node | None:
    first, *rest = nodes
    if all(n == first for n in rest):
        return first
    values = [n.value for n in nodes if isinstance(n, Const)]
    if len(values) == len(nodes):
        by = values[1] - values[0]
        even = all(b - a == by for a, b in pairwise(values))
        return add(first, mul(Const(by), k)) if even else None
    loads = [n for n in nodes if isinstance(n, Load)]
    if len(loads) == len(nodes) and len({(n.tensor, len(n.index)) for n in loads}) == 1:
        index = [_node(some, k) for some in zip(*(n.index for n in loads), strict=True)]
        if all(i is not None for i in index):
            return Load(loads[0].tensor, tuple(i for i in index if i is not None))
    return None
