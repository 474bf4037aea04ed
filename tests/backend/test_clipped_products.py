"""Products with one matrix of each row of a tile whose last rows are clipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eventtensor as et

SIZES = (0, 1, 7, 8, 9, 20)


@et.task
def carried(p, f, q, out):
    """The step of a Kalman filter for the covariance of each row."""
    out[:] = f @ p @ f.T + q


@et.task
def columns(p, f, q, out):
    out[:] = f @ (f @ p) @ q


def program(kind: Any) -> et.Program:
    p, n = et.Program("rows"), et.dim("n", min=0, max=64)
    x, out = p.input("x", (n, 4, 4), et.f32), p.output("out", (n, 4, 4), et.f32)
    f, q = p.weight("f", (4, 4), et.f32), p.weight("q", (4, 4), et.f32)
    p.call(kind, grid=(n.tiles(8),), reads=lambda i: (x[i*8 : i*8+8, :, :], f, q),
           writes=lambda i: out[i*8 : i*8+8, :, :])
    return p


@pytest.mark.parametrize("target", ["interp", "cpu"])
@pytest.mark.parametrize("kind", [carried, columns], ids=["carried", "columns"])
def test_a_matrix_times_each_row_is_what_numpy_gives(target: str, kind: Any) -> None:
    kernel = et.compile(program(kind), target=target, debug=True)
    r = np.random.default_rng(0)
    f, q = (r.integers(-4, 5, (4, 4)).astype(np.float32) for _ in range(2))
    for size in SIZES:
        x = r.integers(-4, 5, (size, 4, 4)).astype(np.float32)
        out = np.empty_like(x)
        kernel(x=x, f=f, q=q, out=out)
        assert np.array_equal(out, f @ x @ f.T + q if kind is carried else f @ (f @ x) @ q)
