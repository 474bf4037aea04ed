"""The examples, proved and run on both back ends under every schedule, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from examples.blocks import blocks
from examples.cholesky import TILE, cholesky
from examples.mlp import mlp
from examples.moe import moe
from examples.moe_layers import moe_layers
from examples.moe_reference import moe_arrays, moe_reference
from examples.row_sum import row_sum
from examples.tour import mlp_arrays, mlp_reference, row_sum_arrays, row_sum_reference

SCHEDULES = ("static", "static:round_robin", "ticket", "push", "auto")
SMALL = {
    "row_sum": (row_sum, row_sum_arrays, row_sum_reference, "c"),
    "mlp": (mlp, mlp_arrays, mlp_reference, "out"),
    "moe": (moe, moe_arrays, moe_reference, "out"),
}


def moe_layers_arrays(n: int, layers: int) -> dict[str, np.ndarray]:
    one = [moe_arrays(n, np.random.default_rng(100 + k)) for k in range(layers)]
    stacked = {k: np.stack([v[k] for v in one]) for k in ("router", "w_gate", "w_up", "w_down")}
    return {"x": one[0]["x"].copy(), **stacked}


def moe_layers_reference(v: dict[str, np.ndarray]) -> np.ndarray:
    x = v["x"].astype(np.float64)
    for k in range(len(v["router"])):
        layer = {name: v[name][k] for name in ("router", "w_gate", "w_up", "w_down")}
        x = x + moe_reference({"x": x, **layer})
    return x


@pytest.mark.parametrize("make", [row_sum, mlp, moe, moe_layers, blocks, cholesky])
def test_an_example_is_proved(make):
    report = et.check(make())
    assert report.ok, str(report)


@pytest.mark.parametrize("target", ["interp", "cpu"])
@pytest.mark.parametrize("name", SMALL)
def test_one_compile_is_right_at_every_size(name, target):
    make, arrays, reference, out = SMALL[name]
    kernel = et.compile(make(), target=target, debug=True)
    for n in (1, 2, 33, 32, 64, 7):
        values = arrays(n, np.random.default_rng(n))
        values[out][:] = np.nan
        kernel(**values)
        np.testing.assert_allclose(values[out], reference(values), rtol=2e-5, atol=2e-5)
    assert kernel.compilations == 1
    kernel.close()


@pytest.mark.parametrize("name", ["row_sum", "mlp", pytest.param("moe", marks=pytest.mark.full)])
def test_outputs_are_bit_equal_across_schedules_workers_and_runs(name):
    make, arrays, _, out = SMALL[name]
    seen = set()
    for schedule in SCHEDULES:
        for workers in (1, 2, 3, 64):
            kernel = et.compile(make(), schedule=schedule, workers=workers)
            for _ in range(3):
                values = arrays(33, np.random.default_rng(5))
                values[out][:] = np.nan
                kernel(**values)
                seen.add(values[out].tobytes())
            kernel.close()
    assert len(seen) == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_experts_in_a_layer_loop_are_right_under_every_schedule(schedule):
    kernel = et.compile(moe_layers(), schedule=schedule, workers=3)
    for n, layers in ((5, 3), (17, 1), (1, 4)):
        values = moe_layers_arrays(n, layers)
        wanted = moe_layers_reference(values)
        kernel(**values)
        np.testing.assert_allclose(values["x"], wanted, rtol=1e-3, atol=1e-3)
    kernel.close()


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_cholesky_factors_a_matrix_in_place(target):
    kernel = et.compile(cholesky(), target=target)
    for tiles in (1, 2, 5):
        n = tiles * TILE
        m = np.random.default_rng(tiles).standard_normal((n, n))
        spd = m @ m.T + n * np.eye(n)
        a = spd.astype(np.float32)
        kernel(a=a)
        low = np.tril(a).astype(np.float64)
        np.testing.assert_allclose(low @ low.T, spd, rtol=1e-4, atol=1e-3)
    kernel.close()


def test_the_blocks_unrolled_and_looped_give_the_same_bits():
    rng = np.random.default_rng(0)
    looped, unrolled = blocks(), blocks(3)
    shapes = {
        "w_qkv": (3, 64, 192), "w_o": (3, 64, 64), "w_up": (3, 64, 256), "w_down": (3, 128, 64),
    }
    weights = {k: (rng.standard_normal(s) / 16).astype(np.float32) for k, s in shapes.items()}
    h = rng.standard_normal((33, 64)).astype(np.float32)
    results = []
    for program in (looped, unrolled):
        kernel = et.compile(program, workers=2)
        state = h.copy()
        kernel(h=state, **weights)
        results.append(state)
        kernel.close()
    assert np.isfinite(results[0]).all()
    np.testing.assert_array_equal(*results)
