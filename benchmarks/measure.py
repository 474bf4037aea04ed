"""What every benchmark shares: samples by the GPU's clock, rows with their spread, one JSON file a
script. torch gives events, graphs and peers; it is imported when the first of them is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SAMPLES, WARM = 24, 4
STATISTICS = ("median", "p10", "p90", "samples", "unit")
CONTEXT = ("group", "gpu", "versions")

Row = dict[str, Any]


def torch() -> Any:
    return importlib.import_module("torch")


# ---- the machine -----------------------------------------------------------------------------


def find_nvcc() -> str:
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if found is None:
        sys.exit("nvcc is neither on PATH nor in /usr/local/cuda/bin")
    return found


def said(*command: str) -> str:
    """The output of a command, or nothing if it cannot be had."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def machine(**more: str) -> Row:
    """The fields that every row carries; `more` versions beside the driver's."""
    line = said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    name, _, driver = line.partition("\n")[0].partition(", ")
    return {"gpu": name or "none", "versions": {"driver": driver or "unknown", **more}}


def nvcc_version(nvcc: str) -> str:
    release = [part for part in said(nvcc, "--version").split() if part.startswith("V1")]
    return release[0] if release else "unknown"


# ---- rows ------------------------------------------------------------------------------------


def spread(samples: Iterable[float], unit: str) -> Row:
    """Median, 10th and 90th percentile of samples."""
    ordered = sorted(samples)

    def at(q: float) -> float:
        place = q * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    found = {"median": at(0.5), "p10": at(0.1), "p90": at(0.9)}
    rounded = {k: float(f"{v:.6g}") for k, v in found.items()}
    return {**rounded, "samples": len(ordered), "unit": unit}


def print_row(row: Row) -> None:
    hidden = ("name", "error", "refused", *STATISTICS, *CONTEXT)
    parameters = " ".join(f"{k}={v}" for k, v in row.items() if k not in hidden)
    for said in ("error", "refused"):
        if said in row:
            print(f"{row['name']:22} {parameters} {said.upper()} {row[said]}", flush=True)
            return
    numbers = " ".join(f"{row[k]:10.4g}" for k in ("median", "p10", "p90"))
    print(f"{row['name']:22} {numbers} {row['unit']:30} {parameters}", flush=True)


def print_heads() -> None:
    print(f"{'name':22} {'median':>10} {'p10':>10} {'p90':>10} {'unit':30} parameters")


def write(path: Path, rows: list[Row]) -> None:
    """By way of a second file, so that none is ever half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    partial.replace(path)


@dataclass
class Bench:
    """The rows of one script: each is printed at once, and all so far are in the file."""

    name: str
    out: Path
    quick: bool
    context: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @property
    def samples(self) -> int:
        return 5 if self.quick else SAMPLES

    def add(self, name: str, samples: Iterable[float], unit: str, **fields: Any) -> Row:
        return self._keep({"name": name, **fields, **spread(samples, unit)})

    def fail(self, name: str, error: str, **fields: Any) -> None:
        """A row for what is wrong; main() answers 1 then."""
        self._keep({"name": name, **fields, "error": error})

    def refuse(self, name: str, refused: str, **fields: Any) -> None:
        """A row for what the compiler or the driver does not do, with its words."""
        self._keep({"name": name, **fields, "refused": refused})

    def _keep(self, row: Row) -> Row:
        row |= self.context
        self.rows.append(row)
        print_row(row)
        write(self.out / f"{self.name}.json", self.rows)
        return row


def main(name: str, describe: str | None, measure: Callable[[Bench], None]) -> None:
    """A script's command line: --quick for a smoke run, --out for the folder of the results."""
    parser = argparse.ArgumentParser(description=describe)
    parser.add_argument("--quick", action="store_true", help="few samples: does it run at all?")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON files")
    args = parser.parse_args()
    t = torch()
    versions = {"torch": t.__version__, "cuda": str(t.version.cuda)}
    bench = Bench(name, args.out, args.quick, machine(**versions))
    print(f"{bench.context['gpu']}, {bench.context['versions']}")
    print_heads()
    started = time.perf_counter()
    measure(bench)
    print(f"{name}: {time.perf_counter() - started:.1f} s")
    sys.exit(any("error" in row for row in bench.rows))


# ---- the clock -------------------------------------------------------------------------------


def gpu_us(run: Callable[[], object], samples: int, each: int = 1) -> list[float]:
    """Microseconds of `run` by CUDA events, after warm-up; a run does `each` things."""
    cuda = torch().cuda
    found = []
    for k in range(WARM + samples):
        first, last = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(200_000)  # the device is busy until everything is enqueued
        first.record()
        run()
        last.record()
        last.synchronize()
        if k >= WARM:
            found.append(first.elapsed_time(last) * 1e3 / each)
    return found


def graph(enqueue: Callable[[], object], times: int = 1) -> Callable[[], None]:
    """A CUDA graph that does `enqueue` a number of times: replays cost the host next to nothing."""
    cuda = torch().cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):  # what is done once only must not be captured
        enqueue()
    cuda.synchronize()
    made = cuda.CUDAGraph()
    with cuda.graph(made):
        for _ in range(times):
            enqueue()
    return lambda: made.replay()


def graph_us(enqueue: Callable[[], object], samples: int, times: int = 1) -> list[float]:
    """Microseconds of one `enqueue` among `times` in a graph."""
    return gpu_us(graph(enqueue, times), samples, times)


def here() -> Any:
    """The stream that torch works on now: the one that a graph captures."""
    return torch().cuda.current_stream()


def slope(few: list[float], many: list[float], steps: int) -> list[float]:
    """What one more step costs, for each sample of `many`."""
    base = statistics.median(few)
    return [(t - base) / steps for t in many]


def host_us(run: Callable[[], object], samples: int, each: int) -> list[float]:
    """Microseconds of the host for one of `each` runs; the device is idle before every sample."""
    cuda = torch().cuda
    found = []
    for k in range(WARM + samples):
        cuda.synchronize()
        started = time.perf_counter()
        for _ in range(each):
            run()
        took = time.perf_counter() - started
        if k >= WARM:
            found.append(took * 1e6 / each)
    cuda.synchronize()
    return found
