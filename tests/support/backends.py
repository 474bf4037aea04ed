"""Back ends, each one function: run a program at dims on arrays, which it changes in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from eventtensor.compiler import PASSES, State, run_passes
from eventtensor.config import Options
from eventtensor.interp import Order, Report, run, run_reference
from eventtensor.ir.plan import Plan
from eventtensor.ir.program import Program
from eventtensor.ir.tensor import Role
from eventtensor.ir.walk import evaluate, loads_of

Arrays = dict[str, Any]
Dims = Mapping[str, int]

ORDERS = ((Order.random, 1), (Order.random, 2), (Order.adversarial, 0))


def make_arrays(
    program: Program, dims: Dims, seed: int = 0, given: Mapping[str, Any] | None = None
) -> Arrays:
    """Arrays for every tensor but scratch: small integers; `given` ones as they are."""
    rng = np.random.default_rng(seed)
    out: Arrays = {}
    for t in program.tensors:
        if t.role is Role.scratch:
            continue
        shape = tuple(evaluate(s, dims) for s in t.shape)
        if given is not None and t.name in given:
            out[t.name] = np.array(given[t.name], t.dtype.numpy)
        else:
            out[t.name] = rng.integers(0, 97, shape).astype(t.dtype.numpy)
    return out


def copies(arrays: Arrays) -> Arrays:
    return {n: a.copy() for n, a in arrays.items()}


def run_direct(program: Program, dims: Dims, arrays: Arrays) -> Arrays:
    """Program order, no events: what every other way to run must equal."""
    out = copies(arrays)
    run_reference(program, dims, out)
    return out


def run_interp(
    plan: Plan, dims: Dims, arrays: Arrays, order: Order, seed: int, debug: bool = True
) -> tuple[Arrays, Report]:
    out = copies(arrays)
    return out, run(plan, dims, out, order=order, seed=seed, debug=debug)


@contextmanager
def cpu_kernel(plan: Plan, workers: int) -> Iterator[Any]:
    """A compiled kernel, closed at the end."""
    from eventtensor.runtime.cpu_kernel import CpuKernel

    kernel = CpuKernel(plan, Options(workers=workers))
    try:
        yield kernel
    finally:
        kernel.close()


def index_data(program: Program, dims: Dims, arrays: Arrays) -> Arrays:
    """What indices, extents and counts read, after a plain run: index tensors are written once."""
    shown = tuple(
        replace(t, role=Role.output) if t.role is Role.scratch and t.dtype.is_int else t
        for t in program.tensors
    )
    opened = replace(program, tensors=shown)
    full = {**make_arrays(opened, dims), **copies(arrays)}
    run_reference(opened, dims, full)
    return {n: a for n, a in full.items() if np.issubdtype(a.dtype, np.integer)}


def plan_with(state: State, derived: Any) -> Plan:
    """The plan of a state with other events than it derived."""
    changed = State(state.options, state.program, state.gpu, state.choices, derived,
                    derived.uses(state.program), state.report)
    dict(PASSES)["plan"](changed)
    assert changed.plan is not None
    return changed.plan


def passes(program: Any, schedule: str = "static") -> State:
    return run_passes(program, Options(schedule=schedule))


def is_static(program: Program) -> bool:
    """True if no run-time data is in any region, extent, event map or count."""
    from eventtensor.ir.tensor import region_exprs

    exprs = [e.count for e in program.events if e.count is not None]
    for p in program.calls:
        exprs += [a.extent for a in p.axes]
        for r in (*p.call.regions, *(p.call.waits or ()), *(p.call.notifies or ())):
            exprs += region_exprs(r)
    return not loads_of(*exprs)


def filled(plan: Plan, dims: Dims, given: Arrays) -> tuple[dict[str, int], Arrays]:
    """A launch of a program that has more than its calls use: those dims that it knows, and zeros
    for the rest."""
    known = {d.name for d in plan.program.dims}
    dims = {k: v for k, v in dims.items() if k in known}
    out = {k: v.copy() for k, v in given.items()}
    for t in plan.program.tensors:
        if t.role is not Role.scratch and t.name not in out:
            out[t.name] = np.zeros([evaluate(n, dims) for n in t.shape], t.dtype.numpy)
    return dims, out
