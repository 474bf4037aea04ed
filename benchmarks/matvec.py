"""Products of few rows with weights out of memory, on CPU threads, beside what the machine reads.

Sizes are those of SmolLM2-135M. `head` is one wide grid, `layers` a chain of 60 dependent grids,
`hops` a chain of grids with next to no work: what one costs by itself.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import eventtensor as et
from benchmarks.measure import RESULTS, WARM, Bench, print_heads, said, slope
from eventtensor.config import environment
from eventtensor.runtime.cpp_build import build_library

HIDDEN, INNER, WORDS, LAYERS = 576, 1536, 49152, 30
WIDE = 16  # columns of a panel
HOPS = 210  # grids of a step: 30 layers of 7
ROWS, PANELS = (1, 4, 16), (1, 2, 4)  # rows of x; panels of a task
READ_BYTES = 1 << 28

Arrays = dict[str, np.ndarray]

READ = """
#include <cstdint>
#include <thread>
#include <vector>
typedef uint64_t Line __attribute__((vector_size(64), may_alias, aligned(16)));
extern "C" uint64_t read_all(const char* data, int64_t bytes, int64_t workers) {
  std::vector<uint64_t> found(size_t(workers) * 16);
  std::vector<std::thread> threads;
  for (int64_t w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      const Line* const at = reinterpret_cast<const Line*>(data);
      const int64_t lines = bytes / int64_t(sizeof(Line));
      const int64_t end = lines * (w + 1) / workers;
      Line a{}, b{};
      int64_t k = lines * w / workers;
      for (; k + 1 < end; k += 2) { a ^= at[k]; b ^= at[k + 1]; }
      a ^= b;
      for (int j = 0; j < 8; ++j) found[size_t(w) * 16] ^= a[j];
    });
  for (std::thread& t : threads) t.join();
  uint64_t all = 0;
  for (uint64_t x : found) all ^= x;
  return all;
}
"""


def seconds(samples: int, run: Callable[..., object], *args: Any, **named: Any) -> list[float]:
    found = []
    for k in range(WARM + samples):
        started = time.perf_counter()
        run(*args, **named)
        if k >= WARM:
            found.append(time.perf_counter() - started)
    return found


# ---- programs ----------------------------------------------------------------------------------


@et.task
def project(x, w, out):
    for p in range(w.shape[0]):
        out[:, p * WIDE : p * WIDE + WIDE] = x @ w[p, :, :]


@et.task
def copy(x, out):
    out[:] = x


def tile(i: Any, size: int) -> Any:
    return slice(i * size, i * size + size)


def head(dtype: et.DType, each: int) -> et.Program:
    """`each` panels a task."""
    p, rows = et.Program("head"), et.dim("rows", max=128)
    x = p.input("x", (rows, HIDDEN), et.f32)
    tasks = WORDS // WIDE // each
    w = p.weight("w", (tasks, each, HIDDEN, WIDE), dtype)
    out = p.output("out", (rows, WORDS), et.f32)
    p.call(project, name="head", grid=(tasks,),
           reads=lambda i: (x[:, :], w[i, :, :, :]),
           writes=lambda i: out[:, tile(i, each * WIDE)])
    return p


def layers(dtype: et.DType, hidden: int, inner: int, each: int) -> et.Program:
    """h = (h @ up) @ down, layer by layer."""
    p, rows, count = et.Program("layers"), et.dim("rows", max=128), et.dim("layers", max=999)
    h = p.state("h", (rows, hidden), et.f32)
    y = p.scratch("y", (rows, inner), et.f32)
    out, back = inner // WIDE // each, hidden // WIDE // each
    up = p.weight("up", (count, out, each, hidden, WIDE), dtype)
    down = p.weight("down", (count, back, each, inner, WIDE), dtype)
    with p.loop("l", count) as l:  # noqa: E741
        p.call(project, name="expand", grid=(out,),
               reads=lambda i: (h[:, :], up[l, i, :, :, :]),
               writes=lambda i: y[:, tile(i, each * WIDE)])
        p.call(project, name="contract", grid=(back,),
               reads=lambda i: (y[:, :], down[l, i, :, :, :]),
               writes=lambda i: h[:, tile(i, each * WIDE)])
    return p


# ---- measurements ------------------------------------------------------------------------------


def random(shape: tuple[int, ...], dtype: et.DType, seed: int) -> np.ndarray:
    """Weights whose products neither grow nor vanish over a chain of layers."""
    rng = np.random.default_rng(seed)
    wide = rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-2]))
    return wide.astype(dtype.numpy)


class Reader:
    """Reads memory with a number of cores, nothing else done."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(build_library(READ, "read", environment()).path))
        self._library.read_all.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        self._data = np.ones(READ_BYTES, np.uint8)

    def rates(self, samples: int, workers: int) -> list[float]:
        """GB/s."""
        at, size = self._data.ctypes.data, self._data.nbytes
        took = seconds(samples, self._library.read_all, at, size, workers)
        return [size / t / 1e9 for t in took]


def cores() -> int:
    return len(os.sched_getaffinity(0))


def product(
    bench: Bench, reader: Reader, name: str, run: Callable[..., object], arrays: Arrays,
    weights: int, **fields: Any,
) -> None:
    """A row, and what memory gives: read before and after, as the machine may have other work."""
    before = reader.rates(bench.samples, cores())
    rates = [weights / t / 1e9 for t in seconds(bench.samples, run, **arrays)]
    floor = float(np.median([*before, *reader.rates(bench.samples, cores())]))
    share = round(100 * float(np.median(rates)) / floor, 1)
    bench.add(name, rates, "GB/s of weights", **fields, floor=round(floor, 2), percent=share)


def measure_head(bench: Bench, reader: Reader, dtype: et.DType) -> None:
    for each in PANELS:
        w = random((WORDS // WIDE // each, each, HIDDEN, WIDE), dtype, 0)
        kernel = et.compile(head(dtype, each), target="cpu")
        for rows in ROWS:
            out = np.zeros((rows, WORDS), np.float32)
            arrays = {"x": random((rows, HIDDEN), et.f32, 1), "w": w, "out": out}
            product(bench, reader, "head", kernel, arrays, w.nbytes, dtype=str(dtype), rows=rows,
                    panels=each)
        kernel.close()


def measure_layers(bench: Bench, reader: Reader, dtype: et.DType) -> None:
    for each in PANELS:
        up = random((LAYERS, INNER // WIDE // each, each, HIDDEN, WIDE), dtype, 0)
        down = random((LAYERS, HIDDEN // WIDE // each, each, INNER, WIDE), dtype, 1)
        kernel = et.compile(layers(dtype, HIDDEN, INNER, each), target="cpu")
        for rows in ROWS:
            arrays = {"h": random((rows, HIDDEN), et.f32, 2), "up": up, "down": down}
            product(bench, reader, "layers", kernel, arrays, up.nbytes + down.nbytes,
                    dtype=str(dtype), rows=rows, panels=each)
        kernel.close()


def measure_hops(bench: Bench) -> None:
    """One panel a worker: the rest is dispatch, wait and notify."""
    wide = WIDE * cores()
    kernel = et.compile(layers(et.f32, wide, wide, 1), target="cpu")
    w = random((HOPS // 2, cores(), 1, wide, WIDE), et.f32, 0)
    h = random((1, wide), et.f32, 1)
    more = w.copy()
    base = seconds(bench.samples, kernel, h=h, up=w[:1], down=more[:1])
    took = slope(base, seconds(bench.samples, kernel, h=h, up=w, down=more), HOPS - 2)
    kernel.close()
    bench.add("launch", [t * 1e6 for t in base], "us", grids=2)
    bench.add("hops", [t * 1e6 for t in took], "us a grid", grids=HOPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples: does it run at all?")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON files")
    args = parser.parse_args()
    model = [s for s in said("lscpu").splitlines() if s.startswith("Model name")]
    name = model[0].partition(":")[2].strip() if model else platform.machine()
    bench = Bench("matvec", args.out, args.quick, {"cpu": f"{name}, {cores()} cores"})
    print(bench.context["cpu"])
    print_heads()
    reader = Reader()
    for workers in sorted({1, cores()}):
        bench.add("read", reader.rates(bench.samples, workers), "GB/s", workers=workers)
    measure_hops(bench)
    for dtype in (et.bf16, et.f32):
        measure_head(bench, reader, dtype)
        measure_layers(bench, reader, dtype)
    sys.exit(any("error" in row for row in bench.rows))


if __name__ == "__main__":
    main()
