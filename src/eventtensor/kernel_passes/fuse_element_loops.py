"""Loops over the same elements, one behind the other, become one loop.

before                                  after
    elements (i < n) linear                 elements (i < n) linear
      v[i] = f(x[i])                          v[i] = f(x[i])
    elements (i < n) linear                   y[i] = g(v[i])
      y[i] = g(v[i])

Precondition: equal axes and distributions, and no access of one conflicts with one of the other:
what a thread reads of the first loop's results it has written itself.
"""

from __future__ import annotations

from dataclasses import replace

from ..kernel_ir import statements as st
from ..kernel_ir.distributions import Linear
from ..kernel_ir.effects import conflict, effects
from ..kernel_ir.traversal import with_bodies


def fuse_element_loops(f: st.Function) -> st.Function:
    return replace(f, body=_fused(f.body))


def _fused(block: st.Block) -> st.Block:
    out: list[st.Stmt] = []
    for s in with_bodies(block, _fused):
        last = out[-1] if out else None
        if isinstance(s, st.Elements) and isinstance(last, st.Elements) and _fuses(last, s):
            both = last.independent and s.independent
            out[-1] = replace(last, body=(*last.body, *s.body), independent=both)
        else:
            out.append(s)
    return tuple(out)


def _fuses(a: st.Elements, b: st.Elements) -> bool:
    """Threads that fold together stay by themselves: their loops are long."""
    if a.axes != b.axes or a.distribution != b.distribution or a.serial or b.serial:
        return False
    if not a.spread or not isinstance(a.distribution, Linear) or a.first or b.first:
        return False
    mine, others = effects(a).accesses, effects(b).accesses
    return not any(conflict(x, y) for x in mine for y in others)
