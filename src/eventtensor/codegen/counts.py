"""What a launch counts in 64 bits, as expressions over dims: the tasks of each call, the cells of
each event, and all cells with the slots of queues."""

from __future__ import annotations

from ..errors import UnboundedGrid
from ..ir.expr import Const, Node, add, product
from ..ir.interval import DeclaredBounds, at_least_zero
from ..ir.plan import Plan
from ..ir.program import GridAxis, PlacedCall, Program


def counts_of(known: Plan | Program) -> list[tuple[str, Node]]:
    """Pairs of a name and a number."""
    program = known if isinstance(known, Program) else known.program
    tasks = [(p, _tasks(program, p)) for p in program.calls]
    found = [(f"call '{p.call.name}' has tasks", n) for p, n in tasks if n is not None]
    cells: Node = Const(0)
    for e in known.events:
        own = product([at_least_zero(s) for s in e.shape])
        found.append((f"event '{e.name}' has cells", own))
        cells = add(cells, own)
    for p, n in tasks:
        cells = add(cells, n) if p.call.pushed and n is not None else cells
    return [*found, ("the launch has cells", cells)]


def _tasks(program: Program, p: PlacedCall) -> Node | None:
    """None if run-time data without a bound decides."""
    try:
        return product(grid_box(program, p.axes))
    except UnboundedGrid:
        return None


def grid_box(program: Program, axes: tuple[GridAxis, ...]) -> tuple[Node, ...]:
    """Extents, over dims alone, of a box that holds every coordinate of `axes`."""
    found, scope = [], DeclaredBounds(program)
    for a in axes:
        end = scope.upper(a.extent)
        if end is None:
            raise UnboundedGrid(f"nothing bounds '{a.extent}', an extent of a grid",
                                place=program.name)
        found.append(at_least_zero(end))
        scope.add_counter(a.var, a.extent)
    return tuple(found)
