"""Where every thread has the same few elements, their loop is unrolled; and what is read from
device memory is loaded for all of them before the first is stored: stores hold up loads.

before                                  after, on 256 threads
    elements (i < 1024) linear              elements (i < 1024) linear(4 each), first b = x[i]
      y[i] = x[i]                             y[i] = b

Precondition: one spread axis, of a constant extent that the threads divide, with at most 8 elements
each; for the loads besides: no serial axis, and no access in the body conflicts with the loads.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from ..ir.expr import Const
from ..kernel_ir import scalar_values as v
from ..kernel_ir import statements as st
from ..kernel_ir.distributions import Linear
from ..kernel_ir.effects import conflict, effects, value_accesses
from ..kernel_ir.scopes import Space
from ..kernel_ir.traversal import walk, with_bodies

_MOST = 8  # elements of a thread


def batch_loads(f: st.Function) -> st.Function:
    numbers, threads = count(1), f.threads

    def in_block(block: st.Block) -> st.Block:
        return tuple(
            _batched(s, threads, f"$b{next(numbers)}")
            if isinstance(s, st.Elements) and _each(s, threads) > 1
            else s
            for s in with_bodies(block, in_block)
        )

    return replace(f, body=in_block(f.body))


def _each(s: st.Elements, threads: int) -> int:
    """How many elements a thread has, if all have as many and these fit registers; else 0."""
    if s.distribution != Linear() or len(s.spread) != 1:
        return 0
    extent = s.spread[0].extent
    each, rest = divmod(extent.value, threads) if isinstance(extent, Const) else (0, 1)
    return each if rest == 0 and each <= _MOST else 0


def _batched(s: st.Elements, threads: int, name: str) -> st.Elements:
    few = replace(s, distribution=Linear(_each(s, threads)))
    store = s.body[0]
    if s.serial or not isinstance(store, st.Store) or not _far(store.value):
        return few
    loads = tuple(value_accesses(store.value, s))
    if any(conflict(x, y) for x in loads for y in effects(s).accesses):
        return few
    stored = replace(store, value=v.Name(name, store.value.dtype))
    return replace(few, first=(st.Let(name, store.value),), body=(stored, *s.body[1:]))


def _far(x: v.Scalar) -> bool:
    """True if it reads device memory."""
    return any(isinstance(y, v.Element) and y.view.buffer.space is Space.device for y in walk(x))
