"""A tour: what the compiler derives and proves of three programs, and both back ends at work."""

from __future__ import annotations

import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

import eventtensor as et
from examples.mlp import HIDDEN, WIDTH, mlp
from examples.moe import moe
from examples.moe_reference import moe_arrays, moe_reference
from examples.row_sum import row_sum

Arrays = dict[str, np.ndarray]


def row_sum_arrays(n: int, rng: np.random.Generator) -> Arrays:
    return {"a": rng.standard_normal((n, 128), np.float32), "c": np.empty(n, np.float32)}


def row_sum_reference(v: Arrays) -> np.ndarray:
    return v["a"].astype(np.float64).sum(axis=1)


def mlp_arrays(n: int, rng: np.random.Generator) -> Arrays:
    def weight(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape, np.float32) / np.sqrt(shape[0])).astype(
            ml_dtypes.bfloat16
        )

    return {
        "x": rng.standard_normal((n, WIDTH), np.float32),
        "w1": weight(WIDTH, HIDDEN),
        "b1": rng.standard_normal(HIDDEN, np.float32),
        "w2": weight(HIDDEN, WIDTH),
        "out": np.empty((n, WIDTH), np.float32),
    }


def mlp_reference(v: Arrays) -> np.ndarray:
    x, w1, w2 = (v[k].astype(np.float64) for k in ("x", "w1", "w2"))
    y = x @ w1 + v["b1"]
    return (y / (1 + np.exp(-y))) @ w2 + x


def show(
    make: Callable[[], et.Program],
    arrays: Callable[[int, np.random.Generator], Arrays],
    reference: Callable[[Arrays], np.ndarray],
    out: str,
    sizes: tuple[int, ...],
) -> None:
    started = time.perf_counter()
    report = et.check(make())
    print(et.explain(make()))
    print(f"derived and proved in {time.perf_counter() - started:.2f} s: {report.status}")
    for target in ("interp", "cpu"):
        started = time.perf_counter()
        kernel = et.compile(make(), target=target)
        built = time.perf_counter() - started
        for n in sizes:
            values = arrays(n, np.random.default_rng(n))
            started = time.perf_counter()
            kernel(**values)
            took = time.perf_counter() - started
            error = float(np.abs(values[out] - reference(values)).max())
            print(f"  {target:6} n = {n:4}: max error {error:.1e}, {took * 1e3:8.2f} ms")
        print(f"  {target:6} compiled once ({kernel.compilations}) in {built:.2f} s for every size")
        kernel.close()
    print()


def main() -> None:
    show(row_sum, row_sum_arrays, row_sum_reference, "c", (1, 33, 1000))
    show(mlp, mlp_arrays, mlp_reference, "out", (1, 17, 64))
    show(moe, moe_arrays, moe_reference, "out", (1, 13, 64))


if __name__ == "__main__":
    main()
