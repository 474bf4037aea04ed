"""What compiling costs, stage by stage, and what dispatching a task costs on CPU threads.

Prints a table; nothing here is asserted. The program is examples/blocks.py: eight grids a layer.
The GPU's side of dispatch is schedules.py.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import eventtensor as et
from benchmarks.schedules import tiny
from eventtensor.codegen.cpp import Flavour, generate
from eventtensor.compiler import PASSES, State, gpu_of
from eventtensor.config import Options
from examples.blocks import blocks

TASKS = 20_000


def stages(make: Callable[[], et.Program]) -> dict[str, float]:
    """Seconds of each stage, from Python source to C++ text."""
    took: dict[str, float] = {}

    def timed(name: str, run: Callable[[], object]) -> object:
        started = time.perf_counter()
        result = run()
        took[name] = time.perf_counter() - started
        return result

    built = timed("build", lambda: make().build())
    state = State(Options(), built, gpu_of(Options()))
    for name, run in PASSES:
        timed(name, lambda run=run: run(state))
    timed("codegen", lambda: generate(state.plan, Flavour(False, False)))
    took["total"] = sum(took.values())
    return took


def print_stages() -> None:
    rows = {"p.loop, symbolic layers": blocks, "32 layers unrolled": lambda: blocks(32)}
    for name, make in rows.items():
        took = stages(make)
        print(f"{name}: " + ", ".join(f"{k} {v:.2f} s" for k, v in took.items()))


def dispatch(schedule: str, workers: int, repeats: int = 15) -> tuple[float, float]:
    """Median and spread (p10..p90 half-width) of ns a task, a launch's own cost taken off."""
    kernel = et.compile(tiny(TASKS), schedule=schedule, workers=workers)

    def times(count: int) -> list[float]:
        a, c = np.zeros(count // 2, np.float32), np.zeros(count // 2, np.float32)
        kernel(a=a, c=c)
        out = []
        for _ in range(repeats):
            started = time.perf_counter()
            kernel(a=a, c=c)
            out.append((time.perf_counter() - started) * 1e9)
        return out

    empty = statistics.median(times(2))
    each = [(t - empty) / TASKS for t in times(TASKS)]
    kernel.close()
    deciles = statistics.quantiles(each, n=10)
    return statistics.median(each), (deciles[-1] - deciles[0]) / 2


def main() -> None:
    print_stages()
    print(f"{'schedule':20} {'workers':>7} {'ns a task':>14} {'tasks a second':>16}")
    for schedule in ("static", "static:round_robin", "ticket", "push"):
        for workers in (1, 2):
            median, spread = dispatch(schedule, workers)
            print(f"{schedule:20} {workers:7} {median:8.0f} ± {spread:3.0f} {1e9 / median:16,.0f}")


if __name__ == "__main__":
    main()
