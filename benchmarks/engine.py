"""What the engine costs beside its kernel: times between steps and per output token with so many
requests, beside bare launches of the same kernel with as many rows at the same context.

    python benchmarks/engine.py --model random:llama-3.2-1b --target cuda --batch 1 8 32 64
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from measure import gpu_us, torch

from eventtensor import LLM
from eventtensor.bench.inside import Load, latency
from eventtensor.bench.rows import Row, row, write
from eventtensor.models import runner

HERE = Path(__file__).resolve().parent
STEPS = 60  # bare ones on threads, at most
EACH = 10  # launches that follow each other in a sample of a bare step
SAMPLES = 12


class Clock:
    """Looks at the GPU's clock before and after each launch of a runner while it is `on`. The gap
    before a launch is from the end of the one before to where the stream has come to it."""

    def __init__(self, made: runner.Runner) -> None:
        self.on, self.last = False, lambda: None
        self._seen: list[tuple[tuple[int, int], Any, Any]] = []
        self._bound, memory = made.memory.bound, made.memory
        memory.bound = self._watched  # type: ignore[method-assign]

    def _watched(self, kernel: Any, arguments: Mapping[str, Any]) -> Callable[[], None]:
        launch = self._bound(kernel, arguments)
        size = len(arguments["chosen"]), arguments.get("P", 0)  # a kernel for one row has no P

        def watched() -> None:
            self.last = launch
            if not self.on:
                launch()
                return
            first, end = (torch().cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            launch()
            end.record()
            self._seen.append((size, first, end))

        return watched

    def steps(self, chosen: int) -> tuple[list[float], list[float], list[float]]:
        """Milliseconds from end to end, of the kernel, and between kernels, of steps that follow
        each other and choose a token for so many rows and nothing else."""
        torch().cuda.synchronize()
        seen, self._seen = self._seen, []
        pairs = [(a, b) for a, b in pairwise(seen)
                 if a[0] == b[0] == (chosen, 0)]
        return ([a[2].elapsed_time(b[2]) for a, b in pairs],
                [b[1].elapsed_time(b[2]) for _, b in pairs],
                [a[2].elapsed_time(b[1]) for a, b in pairs])


def bare(llm: LLM, clock: Clock | None, batch: int, position: int) -> list[float]:
    """Steps of one row a request, each with pages of its own, with nothing in between. On a GPU
    one launch, again and again, by the GPU's clock."""
    made = llm.engine.runner
    steps = 1 if clock is not None else STEPS
    each = -(-(position + steps) // made.page)
    tables = [list(range(k * each, k * each + each)) for k in range(batch)]
    took = []
    for k in range(steps):
        rows = [runner.Row(r, 5, position + k) for r in range(batch)]
        began = time.perf_counter()
        made.step(rows, tables, batch, logits=0)
        took.append(1e3 * (time.perf_counter() - began))
    if clock is None:
        return took[steps // 3 :]
    return [us / 1e3 for us in gpu_us(lambda: [clock.last() for _ in range(EACH)], SAMPLES, EACH)]


def compared(llm: LLM, clock: Clock | None, load: Load, batch: int, runs: int) -> list[Row]:
    """The engine is idle while the bare steps run: nobody else uses its runner."""
    rows = latency(llm, load, batch, runs, warm=1)
    facts = {"model": llm.model.name, "target": llm.target, "batch": batch, "input": load.input,
             "output": load.output}
    if clock is not None:
        clock.on = True
        latency(llm, load, batch, 1, warm=0)
        clock.on = False
        spent = clock.steps(batch)
    step = row("engine_bare_step", bare(llm, clock, batch, load.input + load.output // 2), "ms",
               **facts)
    rows.append(step)
    (seen,) = (r for r in rows if r["name"] == "latency_itl")
    if clock is not None:
        seen = row("engine_step", spent[0], "ms", **facts)
        rows += [row("engine_kernel", spent[1], "ms", **facts),
                 row("engine_gap", [1e3 * gap for gap in spent[2]], "us", **facts), seen]
    (tpot,) = (r for r in rows if r["name"] == "latency_tpot")
    for r in (seen, tpot):
        if "median" in r:
            r["percent_more"] = round(100 * (r["median"] / step["median"] - 1), 1)
    print(f"{llm.model.name} batch {batch}: bare {step['median']:.3f} ms; between steps "
          f"{_more(seen)}; a token {_more(tpot)}; gaps {_gaps(rows)}", flush=True)
    return rows


def _more(r: Row) -> str:
    """With prompts in every step there is none to compare."""
    return f"{r['median']:.3f} ms ({r['percent_more']:+}%)" if "median" in r else "never"


def _gaps(rows: list[Row]) -> str:
    found = [r for r in rows if r["name"] == "engine_gap" and "median" in r]
    return ", ".join(f"{r['median']:.1f} us (p90 {r['p90']:.1f})" for r in found) or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="random:llama-3.2-1b")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--input", type=int, default=512)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cache-gb", type=float, default=16.0)
    parser.add_argument("--same-bits", action="store_true")
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "engine.json")
    words = parser.parse_args()
    load = Load(words.input, words.output)
    with LLM(words.model, target=words.target, dtype=words.dtype, cache_gb=words.cache_gb,
             context=words.input + words.output, max_running=max(words.batch),
             same_bits=words.same_bits, artifact=words.artifact) as llm:
        clock = Clock(llm.engine.runner) if llm.target == "cuda" else None
        rows: list[Row] = []
        for n in words.batch:
            rows += compared(llm, clock, load, n, words.runs)
            write(rows, words.out)


if __name__ == "__main__":
    main()
