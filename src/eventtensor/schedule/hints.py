"""What a loader may ask for while it waits for run-time data: weights that the next iteration of
the loop surely takes, as far as the L2. The memory would else be idle until an index is known.

Pre: a plan with its streams. Post: hints name weights alone; no result depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..ir.expr import Const, Var, add
from ..ir.plan import Hint, Plan, Stream
from ..ir.program import Loop, PlacedCall
from ..ir.tensor import Point, Role, region_exprs
from ..ir.walk import loads_of

RANGES = 2  # that a loader keeps at a time, as in device/cuda/roles/producer.cuh
LEAST = 1 << 20  # bytes that are worth it


def hints(plan: Plan, most: int) -> tuple[Hint, ...]:
    """For each loop, at the first call of an iteration whose operands run-time data places; `most`
    bytes for each worker."""
    out: list[Hint] = []
    loops = dict.fromkeys(p.loops for p in plan.program.calls if p.loops)
    for around in loops if most > 0 else ():
        calls = [p for p in plan.program.calls if p.loops == around]
        at = next((k for k, p in enumerate(calls) if _waits(plan, p)), None)
        if at is not None:
            known = (h for p in calls[:at] for h in _certain(plan, p, calls[at], most))
            out += list({h.tensor: h for h in known}.values())[:RANGES]
    return tuple(out)


def _loaded(plan: Plan, p: PlacedCall) -> list[Stream]:
    return [s for s in plan.streams if s.call == p.call.name and s.loaded]


def _by_data(p: PlacedCall, s: Stream) -> bool:
    return bool(loads_of(*region_exprs(p.call.reads[s.arg])))


def _waits(plan: Plan, p: PlacedCall) -> bool:
    return any(_by_data(p, s) for s in _loaded(plan, p))


def _certain(plan: Plan, p: PlacedCall, waiting: PlacedCall, most: int) -> Iterator[Hint]:
    """Weights of which each iteration of the innermost loop takes a slice of its own."""
    loop: Loop = p.loops[-1]
    after = add(Var(loop.var), Const(1))
    for s in _loaded(plan, p):
        region = p.call.reads[s.arg]
        tensor, first = plan.program.tensor(region.tensor), region.axes[0]
        sizes = [n.value for n in tensor.shape[1:] if isinstance(n, Const)]
        size = prod(sizes) * tensor.dtype.size
        own = isinstance(first, Point) and first.index == Var(loop.var)
        if own and tensor.role is Role.weight and len(sizes) == len(tensor.shape) - 1 \
                and size >= LEAST:
            yield Hint(waiting.call.name, tensor.name, after, loop.extent, size, most)
