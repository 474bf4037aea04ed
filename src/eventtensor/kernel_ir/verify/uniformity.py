"""Check 1: what threads must reach together, they do.

Each expression varies by launch, role, warp or thread: as much as its leaves do. A load is as
uniform as its index where the element is stable, that is, not written since the role converged
last; else it varies by thread. A statement that converges at a scope stands only where all threads
of that scope are together, and conditions and extents around it are uniform over it.
"""

from __future__ import annotations

from ...errors import NotConverged
from ...ir.expr import Node
from ...ir.walk import free_vars, loads_of
from .. import scalar_values as v
from .. import statements as st
from ..distributions import HalfWarp
from ..effects import effects
from ..scopes import Mode, Scope, Varies
from ..traversal import exprs_of, operands, values_of, walk
from .refusal import Place, places, within


def check_uniformity(f: st.Function) -> None:
    if f.threads == 1:  # alone is always together
        return
    walker = _Walker(dict.fromkeys(f.call.vars, Varies.role))
    walker.block(places(f), Scope.role)


class _Walker:
    """`varies` of names; `unsettled`: memory that was written since the role converged last."""

    def __init__(self, varies: dict[str, Varies]) -> None:
        self.varies = varies
        self.unsettled: set[str] = set()

    def block(self, block: list[Place], together: Scope) -> None:
        for at in block:
            self.stmt(at, together)

    def stmt(self, at: Place, together: Scope) -> None:
        """`together`: the widest scope whose threads all come here at the same time."""
        s = at.stmt
        for x in values_of(s):
            self._folds(at, x, _inside(s, together))
        needed = _needs(s)
        if needed > together:
            raise at.refuse(
                NotConverged,
                f"needs all threads of a {needed.name}, and only those "
                f"of a {together.name} are together here",
            )
        match s:
            case st.Let(name, value, _) | st.Assign(name, value):
                old = self.varies.get(name, Varies.launch) if isinstance(s, st.Assign) else 0
                self.varies[name] = Varies(max(old, self.value(value)))
            case st.Allocate(view):
                self._uniform(at, view.extents, "the size of memory that all threads take")
            case st.Elements():
                self._elements(at, s)
            case st.For():
                self._loop(at, s, together)
            case st.If(condition, body):
                inner = min(together, self.value(condition).same_over)
                self.block(within(at, body), inner)
            case st.Elect(_, body):
                self.block(within(at, body), Scope.thread)
            case _:
                pass
        self._settle(s)

    def _elements(self, at: Place, s: st.Elements) -> None:
        self._uniform(at, tuple(a.extent for a in s.axes), "an extent of shared elements")
        self.varies.update({a.var: Varies.thread for a in s.axes})
        for let in s.first:
            self.varies[let.name] = Varies.thread
        self.block(within(at, s.body), _shared(s))

    def _loop(self, at: Place, s: st.For, together: Scope) -> None:
        """Twice: what is written and assigned at the end meets the begin."""
        extent = self.expr(s.extent)
        self.varies[s.var] = extent
        for _ in range(2):
            self.block(within(at, s.body), min(together, extent.same_over))

    def _uniform(self, at: Place, exprs: tuple[Node, ...], what: str) -> None:
        for e in exprs:
            if self.expr(e) > Varies.role:
                raise at.refuse(NotConverged, f"{what}, {e}, varies by {self.expr(e).name}")

    def _folds(self, at: Place, x: v.Scalar, together: Scope) -> None:
        """Values that threads make together."""
        for y in walk(x):
            scope = (
                y.shared
                if isinstance(y, v.Fold)
                else y.scope
                if isinstance(y, v.Broadcast)
                else Scope.thread
            )
            if scope > together:
                raise at.refuse(
                    NotConverged,
                    f"a value that a {scope.name} makes together, where "
                    f"only the threads of a {together.name} are together",
                )

    def _settle(self, s: st.Stmt) -> None:
        found = effects(s)
        if max(found.meets) >= Scope.role:
            self.unsettled.clear()
        self.unsettled |= {a.memory for a in found.accesses if a.mode is not Mode.read}

    # ---- how much an expression varies ---------------------------------------------------------

    def value(self, x: v.Scalar) -> Varies:
        match x:
            case v.Name(name, _):
                return self.varies.get(name, Varies.thread)
            case v.Element(view, index):
                if view.buffer.name in self.unsettled:
                    return Varies.thread
                return max(map(self.expr, index), default=Varies.launch)
            case v.Pick(var, picked, _, _, inner):
                self.varies[var] = self.value(picked)
                return self.value(inner)
            case v.Fold(shared=Scope.half_warp):
                return Varies.thread
            case v.Fold():
                return self._folded(x)
            case v.Broadcast(Scope.half_warp, v.Fold(shared=Scope.half_warp) as fold):
                return self._folded(fold)
            case v.Broadcast(scope, _):
                return (
                    Varies.role
                    if scope >= Scope.role
                    else Varies.warp
                    if scope >= Scope.warp
                    else Varies.thread
                )
            case _:
                leaves = [*map(self.expr, exprs_of(x)), *map(self.value, operands(x))]
                return max(leaves, default=Varies.launch)

    def _folded(self, x: v.Fold) -> Varies:
        """Whoever folds has gone over all of `var`."""
        self.varies[x.var] = Varies.launch
        return max(self.expr(x.extent), self.value(x.value))

    def expr(self, e: Node) -> Varies:
        names = [self.varies.get(name, Varies.thread) for name in free_vars(e)]
        loads = [Varies.thread for x in loads_of(e) if x.tensor in self.unsettled]
        return max([*names, *loads], default=Varies.launch)


def _needs(s: st.Stmt) -> Scope:
    """The scope whose threads must all come to a statement."""
    match s:
        case st.Barrier(scope, _) | st.Elect(scope, _):
            return scope
        case st.Elements() | st.Allocate() | st.Histogram():
            return Scope.role
        case st.Waits(first=first, last=last):
            return max(first, last)
        case st.ReleaseStages():
            return Scope.warp
        case _:
            return Scope.thread


def _shared(s: st.Elements) -> Scope:
    """The threads that are together in the body: warps run whole where half-warps share."""
    return Scope.warp if isinstance(s.distribution, HalfWarp) else Scope.thread


def _inside(s: st.Stmt, together: Scope) -> Scope:
    """Where the values of a statement are computed."""
    return _shared(s) if isinstance(s, st.Elements) else together
