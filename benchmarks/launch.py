"""What surrounds a launch: host cost, a launch inside a graph, dependent launch, how long a planted
deadlock lasts, loading an artifact, compiling the examples with a cold and a warm cache.
"""

from __future__ import annotations

import tempfile
from typing import Any

import eventtensor as et
from benchmarks.isolated_runs import run_child
from benchmarks.measure import Bench, graph_us, here, host_us, main, torch
from examples.row_sum import row_sum

EXAMPLES = ("row_sum", "mlp", "moe", "moe_layers", "blocks", "cholesky", "chain")
WAIT_LIMIT_S = 0.2
ROWS = 64  # a small launch: the host is what takes time
QUEUED = 100  # launches enqueued in a row, well below what a stream holds
COMPILE_LIMIT_S = 120  # the child compiles all examples
PROCESSES = 8  # samples of what takes a process each, most of which goes into starting it


def small() -> tuple[et.Kernel, dict[str, Any]]:
    t = torch()
    kernel = et.compile(row_sum(), target="cuda")
    return kernel, {"a": t.randn((ROWS, 128), device="cuda"), "c": t.zeros(ROWS, device="cuda")}


def measure_host(bench: Bench) -> None:
    t = torch()
    kernel, arrays = small()
    step, stream, x = kernel.bind(**arrays), here(), t.zeros(ROWS, device="cuda")
    peer = bench.add("host", host_us(lambda: x.add_(1.0), bench.samples, QUEUED), "us",
                     launch="torch add_")["median"]
    ways = {
        "step(stream)": lambda: step(stream),
        "step(stream, dependent=True)": lambda: step(stream, dependent=True),
        "kernel(**device arrays)": lambda: kernel(**arrays),
    }
    for name, run in ways.items():
        bench.add("host", host_us(run, bench.samples, QUEUED), "us", launch=name,
                  peers={"torch add_": peer})
    kernel.synchronize()
    assert t.allclose(arrays["c"], arrays["a"].sum(dim=1), rtol=1e-4, atol=1e-4)
    kernel.close()


def measure_graph(bench: Bench) -> None:
    t = torch()
    kernel, arrays = small()
    step, x = kernel.bind(**arrays), t.zeros(ROWS, device="cuda")
    peer = bench.add("graph", graph_us(lambda: x.add_(1.0), bench.samples, QUEUED), "us",
                     launch="torch add_")["median"]
    for dependent in (False, True):
        times = graph_us(lambda d=dependent: step(here(), dependent=d), bench.samples, QUEUED)
        kernel.synchronize()
        name = "dependent" if dependent else "plain"
        bench.add("graph", times, "us", launch=name, peers={"torch add_": peer})
    if kernel.backend.refused:
        bench.refuse("graph", kernel.backend.refused, launch="dependent")
    kernel.close()


def measure_abort(bench: Bench) -> None:
    env = {"ET_WAIT_LIMIT_S": str(WAIT_LIMIT_S)}
    found = run_child("deadlock", str(3 if bench.quick else 20), env=env)
    bench.add("abort", found["seconds"], "s", floor=WAIT_LIMIT_S)


def measure_load(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kernel, _ = small()
        kernel.save(folder)
        kernel.close()
        found = [run_child("load", folder) for _ in range(3 if bench.quick else PROCESSES)]
    for part in found[0]:
        bench.add("artifact", [f[part] for f in found], "s", part=part)


def measure_compile(bench: Bench) -> None:
    """Few samples, since they are long."""
    counts = ("1", "1") if bench.quick else ("3", "2")
    names = EXAMPLES[:1] if bench.quick else EXAMPLES
    env = {"CUDA_CACHE_DISABLE": "1"}
    answers = run_child("compile", *counts, *names, env=env, seconds=COMPILE_LIMIT_S)
    for name, found in answers.items():
        for part, times in found.items():
            bench.add("compile", times, "s", example=name, part=part)


def measure(bench: Bench) -> None:
    measure_host(bench)
    measure_graph(bench)
    measure_abort(bench)
    measure_load(bench)
    measure_compile(bench)


if __name__ == "__main__":
    main("launch", __doc__, measure)
