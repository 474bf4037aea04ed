"""What one hand-off costs between compiled tasks: a token that goes from worker to worker, and a
grid in which every task needs all of the grid before it. Each kind forced in turn, memory idle.

Hops under a stream at a fixed number of pages in flight are in hopper.py (its own kernels); under
the compiled stream they are what chain.py reports over its floor.
"""

from __future__ import annotations

from typing import Any

import eventtensor as et
from benchmarks.measure import Bench, graph_us, here, main, slope, torch
from eventtensor.errors import BadOption

KINDS = ("auto", "counter", "tagged", "bulk", "same_worker")
FEW, MANY = 64, 2112  # rounds; the difference is timed
LAUNCHES = 4


@et.task
def copy(x, out):
    out[:] = x


@et.task
def plus_one(x, out):
    out[:] = x + 1.0


@et.task
def fold(x, out):
    out[:] = x.max() + 1.0


def token(values: int, most: int = MANY) -> et.Program:
    """One task a round. Round t runs on worker t mod workers: every hand-off is a hop."""
    rounds = et.dim("rounds", max=most)
    p = et.Program("token")
    first, last = p.input("first", (values,), et.f32), p.output("last", (values,), et.f32)
    x = p.scratch("x", (rounds + 1, values), et.f32)
    p.call(copy, name="take", grid=(), reads=lambda: first[:], writes=lambda: x[0, :])
    with p.loop("t", rounds) as t:
        p.call(plus_one, grid=(), reads=lambda: x[t, :], writes=lambda: x[t + 1, :])
    p.call(copy, name="give", grid=(), reads=lambda: x[rounds, :], writes=lambda: last[:])
    return p


def everyone(tasks: int, values: int, most: int = MANY) -> et.Program:
    """Every task of a round reads what all tasks of the round before wrote."""
    rounds = et.dim("rounds", max=most)
    p = et.Program("everyone")
    width = tasks * values
    first, last = p.input("first", (width,), et.f32), p.output("last", (width,), et.f32)
    x = p.scratch("x", (rounds + 1, width), et.f32)

    def own(i):
        return slice(i * values, i * values + values)

    p.call(copy, name="take", grid=(tasks,), reads=lambda i: first[own(i)],
           writes=lambda i: x[0, own(i)])
    with p.loop("t", rounds) as t:
        p.call(fold, grid=(tasks,), reads=lambda i: x[t, :], writes=lambda i: x[t + 1, own(i)])
    p.call(copy, name="give", grid=(tasks,), reads=lambda i: x[rounds, own(i)],
           writes=lambda i: last[own(i)])
    return p


def right(name: str, first: Any, last: Any, rounds: int) -> bool:
    wanted = first + rounds if name == "token" else (first.max() + rounds).expand_as(last)
    return bool(torch().equal(last, wanted))


def measure_kind(bench: Bench, name: str, program: et.Program, kind: str, **told: Any) -> None:
    t = torch()
    told |= {"handoff": kind}
    try:
        kernel = et.compile(program, target="cuda", schedule="static", handoff=kind)
    except BadOption as refused:
        bench.refuse(name, str(refused), **told)
        return
    width = told["values"] * told["tasks"]
    first = t.randint(0, 1000, (width,), device="cuda").float()
    last = t.zeros(width, device="cuda")
    times = {}
    for rounds in (FEW, MANY):
        step = kernel.bind(first=first, last=last, rounds=rounds)
        times[rounds] = graph_us(lambda step=step: step(here()), bench.samples, LAUNCHES)
        kernel.synchronize()
        if not right(name, first, last, rounds):
            bench.fail(name, f"wrong after {rounds} rounds", **told)
            return
    bench.add(name, slope(times[FEW], times[MANY], MANY - FEW), "us", **told,
              picked=picked(kernel))
    kernel.close()


def picked(kernel: et.Kernel) -> str:
    """The hand-offs of the plan, as `explain` has them."""
    return ", ".join(f"{h.event}: {h.kind.value}" for h in kernel.plan.handoffs)


def measure(bench: Bench) -> None:
    sms = torch().cuda.get_device_properties(0).multi_processor_count
    kinds = KINDS[:2] if bench.quick else KINDS
    for values in (32,) if bench.quick else (32, 1024):
        for kind in kinds:
            measure_kind(bench, "token", token(values), kind, values=values, tasks=1)
    for values in (1,) if bench.quick else (1, 16):
        for kind in kinds:
            measure_kind(bench, "everyone", everyone(sms, values), kind, values=values, tasks=sms)


if __name__ == "__main__":
    main("handoffs", __doc__, measure)
