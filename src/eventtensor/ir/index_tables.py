"""Index tables: small tensors that say where the operands of a grid's tiles lie.

The indices of the experts in use are one. The lanes of the producer warp can hold a short row of a
table. The scheduler and the code generator both ask.
"""

from __future__ import annotations

from .expr import Const, Load, Node, Var
from .plan import Plan, Stream
from .products import product_of
from .program import PlacedCall, Program
from .tensor import region_exprs
from .walk import loads_of

_MAX_ELEMENTS = 160  # that the lanes of a warp hold


def placement_exprs(p: PlacedCall, s: Stream) -> tuple[Node, ...]:
    """The expressions that decide where an operand lies, and how its stages are filled."""
    product = product_of(p.call.body, s.arg) if s.is_b_streamed else None
    columns = () if product is None else (product.columns,)
    return (*region_exprs(p.call.regions[s.arg]), *columns)


def placement_loads(plan: Plan, call: str, event: str) -> tuple[Load, ...]:
    """The run-time data that decides where the operands lie that are loaded after an event."""
    p = plan.program.placed(call)
    streams = [s for s in plan.streams if s.call == call and event in s.wait_events]
    return tuple(loads_of(*(e for s in streams for e in placement_exprs(p, s))))


def fits_in_warp(program: Program, p: PlacedCall, load: Load) -> bool:
    """True for an element of a row that the whole grid reads, if a warp can hold the row."""
    *_, size = program.tensor(load.tensor).shape or (None,)
    loops = [Var(lp.var) for lp in p.loops]
    return (
        isinstance(size, Const)
        and size.value <= _MAX_ELEMENTS
        and all(x in loops for x in load.index[:-1])
        and not loads_of(load.index[-1])
    )
