"""What dispatching a task costs under each schedule and number of workers, which schedule wins on
uniform tasks and on tasks whose costs differ ten times, and one program at every size.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

import eventtensor as et
from benchmarks.measure import Bench, graph_us, here, main, slope, torch
from examples.mlp import HIDDEN, WIDTH, mlp

SCHEDULES = ("static", "ticket", "push")
WORKERS = (1, 4, 16, 33, 66)  # and one for each multiprocessor
TASKS_A_WORKER = 1500
WIDE = 256  # values of one task in the comparison of schedules
COMPARED = 132 * 32 + 5  # tasks: no worker count divides them
STEPS, SPREAD = 8, 10


@et.task
def bump(x, out):
    out[:] = x + 1.0


def tiny(most: int) -> et.Program:
    """Two grids of one-value tasks, each task of the second waiting for one of the first."""
    p = et.Program("tiny")
    n = et.dim("n", max=most)
    a, c = p.input("a", (n,), et.f32), p.output("c", (n,), et.f32)
    b = p.scratch("b", (n,), et.f32)
    p.call(bump, name="first", grid=(n,), reads=lambda i: a[i : i + 1],
           writes=lambda i: b[i : i + 1])
    p.call(bump, name="second", grid=(n,), reads=lambda i: b[i : i + 1],
           writes=lambda i: c[i : i + 1])
    return p


@et.task
def equal_work(x, out):
    y = x * 1.0
    for _ in et.range(STEPS):
        y[:] = y * 0.5 + x
    out[:] = y


@et.task
def given_work(x, steps, out):
    y = x * 1.0
    for _ in et.range(steps[0]):
        y[:] = y * 0.5 + x
    out[:] = y


def uniform() -> et.Program:
    p = et.Program("uniform")
    n = et.dim("n", max=COMPARED)
    x, y = p.input("x", (n, WIDE), et.f32), p.output("y", (n, WIDE), et.f32)
    p.call(equal_work, grid=(n,), reads=lambda i: x[i, :], writes=lambda i: y[i, :])
    return p


def uneven() -> et.Program:
    """Task i loops as often as steps[i] says."""
    p = et.Program("uneven")
    n = et.dim("n", max=COMPARED)
    steps = p.input("steps", (n,), et.i32, bound=(1, STEPS * SPREAD))
    x, y = p.input("x", (n, WIDE), et.f32), p.output("y", (n, WIDE), et.f32)
    p.call(given_work, grid=(n,), reads=lambda i: (x[i, :], steps[i : i + 1]),
           writes=lambda i: y[i, :])
    return p


# ---- dispatch ----------------------------------------------------------------------------------


def dispatch_us(kernel: et.Kernel, tasks: int, samples: int) -> list[float]:
    """Microseconds a task over all workers, the launch's own cost taken off."""
    t = torch()
    times = []
    for n in (1, tasks // 2):
        a, c = t.zeros(n, device="cuda"), t.zeros(n, device="cuda")
        step = kernel.bind(a=a, c=c)
        times.append(graph_us(lambda step=step: step(here()), samples))
        kernel.synchronize()
        assert bool((c == 2).all()), f"wrong at {n}"
    return slope(times[0], times[1], tasks)


def measure_dispatch(bench: Bench) -> None:
    """`us_each` is what a worker pays for one task; the median what all pay together for one."""
    sms = torch().cuda.get_device_properties(0).multi_processor_count
    fewer = () if bench.quick else tuple(w for w in WORKERS if w < sms)
    for workers in (*fewer, sms):
        tasks = TASKS_A_WORKER * workers
        for schedule in SCHEDULES:
            kernel = et.compile(tiny(sms * TASKS_A_WORKER), target="cuda", schedule=schedule,
                                workers=workers, handoff="counter")
            times = dispatch_us(kernel, tasks, bench.samples)
            bench.add("dispatch", times, "us", schedule=schedule, workers=workers, tasks=tasks,
                      us_each=round(statistics.median(times) * workers, 4))
            kernel.close()


# ---- which schedule wins -----------------------------------------------------------------------


def work_arrays(program: str, rng: np.random.Generator) -> dict[str, Any]:
    """Of the uneven program a tenth of the tasks cost ten times as much as the others."""
    t = torch()
    arrays = {"x": t.randn((COMPARED, WIDE), device="cuda"),
              "y": t.zeros((COMPARED, WIDE), device="cuda")}
    if program == "uneven":
        steps = np.where(rng.random(COMPARED) < 0.1, STEPS * SPREAD, STEPS)
        arrays["steps"] = t.from_numpy(steps.astype(np.int32)).to("cuda")
    return arrays


def work_wanted(arrays: dict[str, Any]) -> Any:
    """y after k steps of y = y/2 + x from x is x (2 - 2^-k)."""
    k = arrays.get("steps")
    x = arrays["x"].double()
    return x * (2 - 2.0 ** -STEPS) if k is None else x * (2 - (2.0 ** -k.double())[:, None])


def measure_winners(bench: Bench) -> None:
    rng = np.random.default_rng(3)
    for make in (uniform, uneven):
        arrays = work_arrays(make.__name__, rng)
        wanted = work_wanted(arrays)
        for schedule in (*SCHEDULES, "auto"):
            kernel = et.compile(make(), target="cuda", schedule=schedule)
            step = kernel.bind(**arrays)
            times = graph_us(lambda step=step: step(here()), bench.samples, 4)
            kernel.synchronize()
            assert torch().allclose(arrays["y"].double(), wanted, rtol=1e-5, atol=1e-5), schedule
            bench.add("schedule", times, "us", program=make.__name__, schedule=schedule,
                      picked=kernel.plan.calls[0].schedule.kind.value, tasks=COMPARED)
            kernel.close()


# ---- every size --------------------------------------------------------------------------------


def mlp_tensors(n: int) -> dict[str, Any]:
    t = torch()
    t.manual_seed(n)

    def weight(*shape: int) -> Any:
        return (t.randn(shape, device="cuda") / shape[0] ** 0.5).to(t.bfloat16)

    return {"x": t.randn((n, WIDTH), device="cuda"), "w1": weight(WIDTH, HIDDEN),
            "b1": t.randn(HIDDEN, device="cuda"), "w2": weight(HIDDEN, WIDTH),
            "out": t.zeros((n, WIDTH), device="cuda")}


def mlp_wanted(v: dict[str, Any]) -> Any:
    x, w1, b1, w2 = (v[k].double() for k in ("x", "w1", "b1", "w2"))
    y = x @ w1 + b1
    return (y * torch().sigmoid(y)) @ w2 + x


def measure_sizes(bench: Bench) -> None:
    """One kernel: right at every n, compiled once, timed at some."""
    t = torch()
    most = 4096
    whole = mlp_tensors(most)
    wanted = mlp_wanted(whole)
    kernel = et.compile(mlp(), target="cuda")

    def at(n: int) -> dict[str, Any]:
        return {**whole, "x": whole["x"][:n], "out": whole["out"][:n]}

    checked = range(1, most + 1, 97 if bench.quick else 1)
    for n in checked:
        whole["out"].fill_(float("nan"))
        kernel(**at(n))
        good = t.allclose(whole["out"][:n].double(), wanted[:n], rtol=1e-4, atol=1e-4)
        if not good or not bool(whole["out"][n:].isnan().all()):
            bench.fail("size", f"wrong at n = {n}", n=n)
            return
    for n in (1, 16, 64, 256, 1024, most):
        step = kernel.bind(**at(n))
        times = graph_us(lambda step=step: step(here()), bench.samples, 4)
        kernel.synchronize()
        bench.add("size", times, "us", n=n, compilations=kernel.compilations,
                  sizes_checked=len(checked))
    kernel.close()


def measure(bench: Bench) -> None:
    measure_dispatch(bench)
    measure_winners(bench)
    measure_sizes(bench)


if __name__ == "__main__":
    main("schedules", __doc__, measure)
