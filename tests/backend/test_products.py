"""Products of every kind of operand give the interpreter's bits: any shape, any side turned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.runtime.cpu_kernel import CpuKernel

PAIRS = {
    "f32": (et.f32, et.f32), "f32_bf16": (et.f32, et.bf16), "bf16": (et.bf16, et.bf16),
    "bf16_f32": (et.bf16, et.f32), "f32_f16": (et.f32, et.f16), "f16": (et.f16, et.f16),
    "i32": (et.i32, et.i32),
}
OUTPUTS = ("plain", "turned_left", "turned_right", "turned_both", "tiles")
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 6e-8, 3e38, 65504.0, -1.0)


@et.task
def plain(a, b, out):
    out[:] = a @ b


@et.task
def turned_left(a, b, out):
    out[:] = a.transpose(1, 0) @ b


@et.task
def turned_right(a, b, out):
    out[:] = a @ b.transpose(1, 0)


@et.task
def turned_both(a, b, out):
    out[:] = a.transpose(1, 0) @ b.transpose(1, 0)


def products(left: et.DType, right: et.DType) -> et.Program:
    """Each kind of sides, and tiles, whose columns lie among those of others."""
    p = et.Program("products")
    m, k, n = (et.dim(name, max=200) for name in "mkn")
    a, turned_a = p.input("a", (m, k), left), p.input("ta", (k, m), left)
    b, turned_b = p.input("b", (k, n), right), p.input("tb", (n, k), right)
    sides = {
        plain: (a, b), turned_left: (turned_a, b), turned_right: (a, turned_b),
        turned_both: (turned_a, turned_b),
    }
    for kind, (x, y) in sides.items():
        out = p.output(kind.name, (m, n), left.tile_dtype)
        p.call(kind, grid=(1,), reads=lambda i, x=x, y=y: (x[:, :], y[:, :]),
               writes=lambda i, out=out: out[:, :])
    tiles = p.output("tiles", (m, n), left.tile_dtype)
    p.call(plain, name="tile", grid=(m.tiles(5), n.tiles(32)),
           reads=lambda i, j: (a[i * 5 : i * 5 + 5, :], b[:, j * 32 : j * 32 + 32]),
           writes=lambda i, j: tiles[i * 5 : i * 5 + 5, j * 32 : j * 32 + 32])
    return p


def integers() -> et.Program:
    """The same in integers, which only the text of a program can multiply."""
    return et.parse(str(products(et.f32, et.f32).build()).replace("f32", "i32"))


def values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: et.DType, special: float
) -> Any:
    """Floats of many sizes, with a share of special ones; integers that make sums wrap."""
    if dtype is et.i32:
        return rng.integers(-(2**31), 2**31, shape, np.int32)
    wild = rng.standard_normal(shape) * np.exp(rng.standard_normal(shape) * 2)
    picked = rng.random(shape) < special
    with np.errstate(over="ignore"):
        return np.where(picked, rng.choice(SPECIAL, shape), wild).astype(dtype.numpy)


def bits(x: Any) -> Any:
    """What tells -0 from 0, and takes one NaN for another."""
    return x if x.dtype.kind != "f" else np.where(np.isnan(x), np.nan, x).view(np.int32)


def shapes(rng: np.random.Generator) -> list[tuple[int, int, int]]:
    rows = [(m, int(rng.integers(1, 80)), 16) for m in range(1, 18)]
    edges = [(1, 1, 1), (1, 64, 32), (16, 33, 1), (35, 7, 2), (4, 8, 15), (5, 19, 17)]
    some = [tuple(int(x) for x in rng.integers(1, 70, 3)) for _ in range(8)]
    return [*rows, *edges, *some]


@pytest.mark.parametrize("name", PAIRS)
def test_products_have_the_interpreters_bits(lab, name: str) -> None:
    left, right = PAIRS[name]
    plan = lab.plan(integers() if name == "i32" else products(left, right))
    kernel = CpuKernel(plan, Options(workers=2))
    rng = np.random.default_rng(len(name))
    for at, (m, k, n) in enumerate(shapes(rng)):
        special = 0.02 if at % 4 == 3 else 0.0
        arrays = {
            "a": values(rng, (m, k), left, special), "ta": values(rng, (k, m), left, special),
            "b": values(rng, (k, n), right, special), "tb": values(rng, (n, k), right, special),
        }
        for out in OUTPUTS:
            arrays[out] = np.zeros((m, n), left.tile_dtype.numpy)
        dims = {"m": m, "k": k, "n": n}
        expected = lab.reference(plan, dims, arrays)
        kernel.launch(dims, arrays)
        for out in OUTPUTS:
            np.testing.assert_array_equal(bits(arrays[out]), bits(expected[out]), f"{out} {dims}")
    kernel.close()
