"""Whole programs as one cooperative kernel: examples, schedules, sizes and worker counts."""

from __future__ import annotations

import numpy as np
import pytest
from backend import conftest as lab
from blocks import blocks
from cholesky import TILE, cholesky
from mlp import mlp
from moe import moe
from moe_layers import moe_layers
from moe_reference import moe_arrays
from row_sum import row_sum
from tour import mlp_arrays, row_sum_arrays

from eventtensor.config import Options
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.cpu import CpuKernel
from eventtensor.runtime.cuda import CudaKernel

SCHEDULES = ("static", "ticket", "push")
Arrays = dict[str, np.ndarray]


def layers_arrays(n: int, rng: np.random.Generator) -> Arrays:
    one = [moe_arrays(n, rng) for _ in range(3)]
    stacked = {k: np.stack([v[k] for v in one]) for k in ("router", "w_gate", "w_up", "w_down")}
    return {"x": one[0]["x"].copy(), **stacked}


def blocks_arrays(n: int, rng: np.random.Generator) -> Arrays:
    shapes = {
        "w_qkv": (3, 64, 192), "w_o": (3, 64, 64), "w_up": (3, 64, 256), "w_down": (3, 128, 64),
    }
    weights = {k: (rng.standard_normal(s) / 16).astype(np.float32) for k, s in shapes.items()}
    return {"h": rng.standard_normal((n, 64)).astype(np.float32), **weights}


def cholesky_arrays(n: int, rng: np.random.Generator) -> Arrays:
    size = -(-n // TILE) * TILE
    m = rng.standard_normal((size, size))
    return {"a": (m @ m.T + size * np.eye(size)).astype(np.float32)}


# name: (program, arrays, no exp or tanh in it)
EXAMPLES = {
    "row_sum": (row_sum, row_sum_arrays, True),
    "mlp": (mlp, mlp_arrays, False),
    "moe": (moe, moe_arrays, False),
    "moe_layers": (moe_layers, layers_arrays, False),
    "blocks": (blocks, blocks_arrays, False),
    "cholesky": (cholesky, cholesky_arrays, True),
}


def launched(kernel, plan, arrays: Arrays) -> Arrays:
    copy = {k: v.copy() for k, v in arrays.items()}
    dims, bound = bind(plan.program, copy)
    kernel.launch(dims, bound)
    return copy


@pytest.mark.parametrize("debug", (False, True))
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_the_cpu_gives(name: str, schedule: str, debug: bool) -> None:
    make, arrays, exact = EXAMPLES[name]
    plan = lab.make_plan(make(), schedule)
    cpu = CpuKernel(plan, Options(workers=2))
    cuda = CudaKernel(plan, Options(target="cuda", debug=debug))
    for n in (33, 1, 64, 7):
        given = arrays(n, np.random.default_rng(n))
        mine, theirs = launched(cuda, plan, given), launched(cpu, plan, given)
        for key, x in theirs.items():
            if exact:
                np.testing.assert_array_equal(mine[key], x, err_msg=f"{key} at {n}")
            else:
                np.testing.assert_allclose(mine[key], x, rtol=1e-3, atol=1e-4, err_msg=key)
    assert cuda.compilations == 1
    cpu.close()
    cuda.close()


@pytest.mark.parametrize("name", EXAMPLES)
def test_bits_are_equal_across_schedules_workers_and_runs(name: str) -> None:
    make, arrays, _ = EXAMPLES[name]
    given = arrays(33, np.random.default_rng(5))
    seen = set()
    for schedule in SCHEDULES:
        plan = lab.make_plan(make(), schedule)
        for workers in (0, 1, 3):
            kernel = CudaKernel(plan, Options(target="cuda", workers=workers))
            for _ in range(3):
                result = launched(kernel, plan, given)
                seen.add(b"".join(result[k].tobytes() for k in sorted(result)))
            kernel.close()
    assert len(seen) == 1


DIMS = {
    "row_sum": lambda k: {"n": 1 + k * 37 % 700},
    "ragged": lambda k: {"m": 1 + k * 7 % 60},
    "carried": lambda k: {"n": 1 + k * 13 % 200, "layers": 1 + k % 9},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", DIMS)
def test_a_hundred_launches_with_changing_dims_need_no_reset(name: str, schedule: str) -> None:
    plan = lab.make_plan(getattr(lab, name)(), schedule)
    kernel, cpu = CudaKernel(plan, Options(target="cuda")), CpuKernel(plan, Options(workers=2))
    for k in range(100):
        dims = DIMS[name](k)
        given = lab.make_arrays(plan, dims, seed=k)
        mine = {n: x.copy() for n, x in given.items()}
        kernel.launch(dims, mine)
        cpu.launch(dims, given)
        lab.assert_same(mine, given)
    kernel.close()
    cpu.close()
