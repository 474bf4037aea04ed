"""Run-time data that decides where the operands of a task lie. What is known of it
(`DataAvailability`) is read before the last waits, so that places need not be looked up when the
last input arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.expr import Load, Node, Select
from ...ir.tensor import Region, Rows, region_exprs
from ...ir.walk import children, free_vars


def sure_loads(e: Node) -> Iterator[Load]:
    """Loads that are done whatever the values are, inner ones first."""
    if isinstance(e, Select):
        yield from sure_loads(e.cond)
        return
    for child in children(e):
        yield from sure_loads(child)
    if isinstance(e, Load):
        yield e


def place_loads(regions: Sequence[Region]) -> tuple[Load, ...]:
    """Run-time data that decides where regions lie, but for the rows of gathered ones."""
    exprs = [e for r in regions for e in region_exprs(r)]
    rows = {a.var for r in regions for a in r.axes if isinstance(a, Rows)}
    found = dict.fromkeys(x for e in exprs for x in sure_loads(e))
    return tuple(x for x in found if not free_vars(x) & rows)
