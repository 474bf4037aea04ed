"""Small tensors that say where the operands of a grid's tiles lie (the experts in use, say): rows
that the lanes of a loader can keep. The scheduler and the code generator both ask."""

from __future__ import annotations

from .expr import Const, Load, Node, Var
from .plan import Plan, Stream
from .products import product_of
from .program import PlacedCall, Program
from .tensor import region_exprs
from .walk import loads_of

_MOST = 160  # elements that the lanes keep


def places(p: PlacedCall, s: Stream) -> tuple[Node, ...]:
    """What says where an operand lies, and how its pages go."""
    product = product_of(p.call.body, s.arg) if s.wide else None
    columns = () if product is None else (product.columns,)
    return (*region_exprs(p.call.regions[s.arg]), *columns)


def loads_after(plan: Plan, call: str, event: str) -> tuple[Load, ...]:
    """What says where operands lie that a loader brings after an event."""
    p = plan.program.placed(call)
    streams = [s for s in plan.streams if s.call == call and event in s.after]
    return tuple(loads_of(*(e for s in streams for e in places(p, s))))


def is_kept(program: Program, p: PlacedCall, load: Load) -> bool:
    """True for an element of a row that the whole grid reads, and that is short enough."""
    *_, size = program.tensor(load.tensor).shape or (None,)
    loops = [Var(lp.var) for lp in p.loops]
    return isinstance(size, Const) and size.value <= _MOST \
        and all(x in loops for x in load.index[:-1]) and not loads_of(load.index[-1])
