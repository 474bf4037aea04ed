"""THE PASS LIST of kernel IR. A worker of one thread needs none of them."""

from __future__ import annotations

from ..kernel_ir.statements import Function
from .batch_loads import batch_loads
from .fuse_element_loops import fuse_element_loops
from .insert_barriers import insert_barriers

PASSES = (fuse_element_loops, batch_loads, insert_barriers)


def run_passes(f: Function) -> Function:
    for step in PASSES if f.threads > 1 else ():
        f = step(f)
    return f
