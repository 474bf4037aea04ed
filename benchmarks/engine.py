"""What the engine costs beside its kernel: time per output token with so many requests, beside bare
steps of the same runner with as many rows at the same positions, and how long it takes to start.

    python benchmarks/engine.py --model random:llama-3.2-1b --target cuda --batch 1 8 32 64
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from eventtensor import LLM
from eventtensor.bench.inside import Load, latency
from eventtensor.bench.rows import Row, row, write
from eventtensor.models import runner

HERE = Path(__file__).resolve().parent
STEPS = 60  # at most


def bare(llm: LLM, batch: int, position: int, steps: int) -> Row:
    """Steps of one row a request, each with pages of its own, with nothing in between."""
    made = llm.engine.runner
    each = -(-(position + steps) // made.page)
    tables = [list(range(k * each, k * each + each)) for k in range(batch)]
    took = []
    for k in range(steps):
        rows = [runner.Row(r, 5, position + k) for r in range(batch)]
        began = time.perf_counter()
        made.step(rows, tables, batch, logits=0)
        took.append(1e3 * (time.perf_counter() - began))
    return row("engine_bare_step", took[steps // 3 :], "ms", model=llm.model.name, batch=batch,
               position=position, target=llm.target)


def compared(llm: LLM, load: Load, batch: int, runs: int) -> list[Row]:
    """The engine is idle while the bare steps run: nobody else uses its runner."""
    rows = latency(llm, load, batch, runs, warm=1)
    step = bare(llm, batch, load.input + load.output // 3, min(STEPS, load.output // 2))
    (tpot,) = (r for r in rows if r["name"] == "latency_tpot")
    more = 100 * (tpot["median"] / step["median"] - 1)
    print(f"{llm.model.name} batch {batch}: {tpot['median']:.3f} ms a token, bare step "
          f"{step['median']:.3f} ms: {more:+.1f}%", flush=True)
    return [*rows, step | {"tpot_percent_more": round(more, 1)}]


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
    load, began = Load(words.input, words.output), time.perf_counter()
    with LLM(words.model, target=words.target, dtype=words.dtype, cache_gb=words.cache_gb,
             context=words.input + words.output, max_running=max(words.batch),
             same_bits=words.same_bits, artifact=words.artifact) as llm:
        ready = row("engine_ready", [time.perf_counter() - began], "s", model=words.model,
                    artifact=words.artifact is not None)
        print(f"ready in {ready['median']:.2f} s", flush=True)
        rows = [r for n in words.batch for r in compared(llm, load, n, words.runs)]
    write([ready, *rows], words.out)


if __name__ == "__main__":
    main()
