"""Grouped products: each tile of rows belongs to a group, and each group has its own weights."""

from __future__ import annotations

import numpy as np

import eventtensor as et

ROWS, WIDTH, OUT, GROUPS = 8, 32, 16, 5


@et.task
def multiply(x, w, out):
    out[:] = x @ w


def program() -> et.Program:
    tiles = et.dim("tiles", max=1000)
    p = et.Program("grouped_products")
    x = p.input("x", (tiles, ROWS, WIDTH), et.f32)
    w = p.weight("w", (GROUPS, WIDTH, OUT), et.f32)
    group = p.input("group", (tiles,), et.i32, bound=GROUPS - 1)
    out = p.output("out", (tiles, ROWS, OUT), et.f32)
    p.call(multiply, grid=(tiles,), reads=lambda t: (x[t, :, :], w[group[t], :, :]),
           writes=lambda t: out[t, :, :])
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "x": rng.standard_normal((7, ROWS, WIDTH), np.float32),
        "w": rng.standard_normal((GROUPS, WIDTH, OUT), np.float32),
        "group": np.sort(rng.integers(0, GROUPS, 7)).astype(np.int32),
    }


def expected(x, w, group) -> dict[str, np.ndarray]:
    return {"out": x @ w[group]}
