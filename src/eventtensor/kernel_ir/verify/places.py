"""Check 6: every access lies inside its memory, and that memory is alive and has been written.

Device memory is reached through views of the regions that the plan has proved. An index is below an
extent by form: each variable of a loop is at most its extent less one, and sub-tiles lie where the
proof of the tile body has shown them. How many bytes a body takes is bounded elsewhere, when the
arena is sized (codegen/cuda/room.py).
"""

from __future__ import annotations

from ...errors import OutsideMemory
from ...ir.expr import Const, Node, Sum, Var, add, mul, product
from ...ir.interval import nonnegative, numeric_bounds
from ...ir.tensor import tile_shape
from .. import buffers as bf
from .. import scalar_values as v
from .. import statements as st
from ..scopes import Space
from ..traversal import operands, values_of
from .proved import Proved, equal_extents, proved_parts
from .refusal import Place, places, within

Bounds = dict[str, Node]  # extents of variables
_DEPTH = 4  # sub-tiles of sub-tiles


def check_places(f: st.Function) -> None:
    _Walker(f).block(places(f), {})


class _Walker:
    """`live` buffers may be accessed, `written` ones read; `views` have a pointer."""

    def __init__(self, f: st.Function) -> None:
        self.f = f
        self.proved: Proved = proved_parts(f.call.call.body)
        self.equal = equal_extents(f.call.call.body)
        self.live: set[str] = set()
        self.written: set[str] = set()
        self.views: set[bf.View] = set()

    def block(self, block: list[Place], bounds: Bounds) -> None:
        for at in block:
            self.stmt(at, bounds)

    def stmt(self, at: Place, bounds: Bounds) -> None:
        s = at.stmt
        if isinstance(s, st.Elements):
            bounds = bounds | {a.var: a.extent for a in s.axes}
        elif isinstance(s, st.Histogram):
            bounds = {**bounds, s.var: s.extent}
        for x in values_of(s):
            self.value(at, x, bounds)
        match s:
            case st.Waits(views=views):
                self.views |= set(views)
                self.live |= {x.buffer.name for x in views}
                self.written |= {x.buffer.name for x in views}
            case st.Allocate(view):
                self._allocate(at, view)
            case st.Bind(view):
                self._bind(at, view)
            case st.Point(view):
                self._known(at, view)
                self.views.add(view)
            case st.Store(view, index, _) | st.Accumulate(view, index, _, _):
                self._access(at, view, index, bounds)
                self.written.add(view.buffer.name)
            case st.Histogram(view):
                self._known(at, view)
                if view.extents[0] != Const(len(s.weights)):
                    raise at.refuse(OutsideMemory, f"'{view.name}' has no row for each weight")
                self.written.add(view.buffer.name)
            case st.For(var, extent, body):
                before = set(self.live)
                self.block(within(at, body), bounds | {var: extent})
                self.live = before
            case st.Elements(body=body) | st.If(body=body) | st.Elect(body=body):
                self.block(within(at, body), bounds)
            case _:
                pass

    def value(self, at: Place, x: v.Scalar, bounds: Bounds) -> None:
        match x:
            case v.Element(view, index):
                self._access(at, view, index, bounds)
                if view.buffer.space is Space.arena and view.buffer.name not in self.written:
                    raise at.refuse(
                        OutsideMemory,
                        f"'{view.buffer.name}' is read before anything is written to it",
                    )
            case v.Pick(var, picked, extent, _, inner):
                self.value(at, picked, bounds)
                self.value(at, inner, bounds | {var: extent})
            case v.Fold(var=var, extent=extent, value=value):
                self.value(at, value, bounds | {var: extent})
            case _:
                for y in operands(x):
                    self.value(at, y, bounds)

    # ---- views ---------------------------------------------------------------------------------

    def _allocate(self, at: Place, view: bf.View) -> None:
        name = view.buffer.name
        if name in self.live:
            raise at.refuse(OutsideMemory, f"'{name}' has memory already, and is still in use")
        self.live.add(name)
        self.written.discard(name)
        self.views.add(view)

    def _bind(self, at: Place, view: bf.View) -> None:
        """A region of the task, of its own extents."""
        call = self.f.call.call
        if view.region not in call.regions:
            raise at.refuse(OutsideMemory, f"the plan has proved no region {view.region}")
        if not self._fits(view):
            raise at.refuse(OutsideMemory, f"the view has other extents than {view.region}")
        self.live.add(view.buffer.name)
        self.views.add(view)

    def _fits(self, view: bf.View) -> bool:
        assert view.region is not None
        tensor = bf.as_tensor(view.buffer)
        return tile_shape(view.region, tensor) == view.extents

    def _known(self, at: Place, view: bf.View) -> None:
        """A view that a statement has made, or that follows from one."""
        match view.origin:
            case None:
                if view not in self.views:
                    raise at.refuse(OutsideMemory, f"nothing has made the view '{view.name}'")
                return
            case bf.Permuted(base, axes):
                derived = bf.permuted(base, axes)
            case bf.Repeated(base):
                derived = bf.repeated(base, view.extents)
                if not _repeats(base.extents, view.extents):
                    raise at.refuse(OutsideMemory, f"'{view.name}' repeats an axis of more than 1")
            case bf.Reshaped(base):
                derived = bf.reshaped(base, view.extents)
                if product(base.extents) != product(view.extents):
                    raise at.refuse(
                        OutsideMemory,
                        f"'{view.name}' has another number of elements in its other shape",
                    )
            case bf.Part(base) as part:
                derived = bf.part(base, view.name, part, view.extents)
                self._inside_base(at, view, part)
        if derived != view:
            raise at.refuse(OutsideMemory, f"'{view.name}' is not laid out as its origin says")
        self._known(at, base)

    def _inside_base(self, at: Place, view: bf.View, part: bf.Part) -> None:
        lengths = iter(view.extents)
        for k, start in enumerate(part.starts):
            length = Const(1) if k in part.dropped else next(lengths)
            if k not in part.clamped and not self._part(start, length, part.base.extents[k]):
                raise at.refuse(
                    OutsideMemory,
                    f"nothing shows that {start} and {length} more lie "
                    f"inside {part.base.extents[k]}, axis {k} of '{part.base.name}'",
                )

    def _part(self, start: Node, length: Node, extent: Node) -> bool:
        left = add(extent, mul(Const(-1), add(start, length)))
        known = (start, length) in self.proved.get(extent, ())
        return known or (_not_negative(left) and _not_negative(start))

    # ---- accesses ------------------------------------------------------------------------------

    def _access(self, at: Place, view: bf.View, index: v.Index, bounds: Bounds) -> None:
        self._known(at, view)
        name = view.buffer.name
        if view.buffer.space is Space.arena and name not in self.live:
            raise at.refuse(
                OutsideMemory, f"the life of '{name}' is over, and its memory may be another's"
            )
        for k, (i, extent) in enumerate(zip(index, view.extents, strict=True)):
            equal = {extent} | self.equal.get(extent, set())
            if not any(self._below(i, e, bounds, _DEPTH) for e in equal):
                raise at.refuse(
                    OutsideMemory,
                    f"nothing shows that index {i} of '{view.name}' is "
                    f"below {extent}, its extent at axis {k}",
                )

    def _below(self, index: Node, extent: Node, bounds: Bounds, depth: int) -> bool:
        """True if 0 <= index < extent, by form."""
        most = _most(index, bounds)
        if most is not None:
            gap = add(extent, mul(Const(-1), add(most, Const(1))))
            if _not_negative(gap):
                return True
        return depth > 0 and any(
            self._below(add(index, mul(Const(-1), start)), length, bounds, depth - 1)
            for start, length in self.proved.get(extent, ())
            if start != Const(0)
        )


def _most(index: Node, bounds: Bounds) -> Node | None:
    """The largest value of an index that is nowhere negative, as far as its form tells."""
    terms, const = (index.terms, index.const) if isinstance(index, Sum) else (((index, 1),), 0)
    if isinstance(index, Const):
        return index if index.value >= 0 else None
    most: Node = Const(const)
    for term, factor in terms:
        extent = bounds.get(term.name) if isinstance(term, Var) else None
        if factor < 0 or extent is None:
            return None
        most = add(most, mul(Const(factor), add(extent, Const(-1))))
    return most if const >= 0 else None


def _not_negative(e: Node) -> bool:
    low = numeric_bounds(e, nonnegative)[0]
    return low is not None and low >= 0


def _repeats(base: tuple[Node, ...], extents: tuple[Node, ...]) -> bool:
    own = extents[len(extents) - len(base) :]
    return all(a in (b, Const(1)) for a, b in zip(base, own, strict=True))
