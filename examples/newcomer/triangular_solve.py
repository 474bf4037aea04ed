"""Solves L x = b for a lower triangle L, a block of rows after the other, columns side by side."""

from __future__ import annotations

import numpy as np

import eventtensor as et

BLOCK, COLUMNS = 8, 16


@et.task
def solve(left, corner, b, done, x):
    rest = b - left @ done
    rows = []
    for i in range(BLOCK):
        row = rest[i]
        if rows:
            row = row - corner[i, :i] @ et.stack(rows)
        rows.append(row / corner[i, i])
    x[:] = et.stack(rows)


def program() -> et.Program:
    blocks, columns = et.dim("blocks", max=64), et.dim("columns", max=1024)
    p, size = et.Program("triangular_solve"), blocks * BLOCK
    lower = p.input("lower", (size, size), et.f32)
    b, x = p.input("b", (size, columns), et.f32), p.output("x", (size, columns), et.f32)
    span = lambda k, width: slice(k * width, k * width + width)
    with p.loop("k", blocks) as k:
        p.call(solve, grid=(columns.tiles(COLUMNS),),
               reads=lambda j: (lower[span(k, BLOCK), 0 : k*BLOCK],
                                lower[span(k, BLOCK), span(k, BLOCK)],
                                b[span(k, BLOCK), span(j, COLUMNS)],
                                x[0 : k*BLOCK, span(j, COLUMNS)]),
               writes=lambda j: x[span(k, BLOCK), span(j, COLUMNS)])
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    size = 4 * BLOCK
    lower = np.tril(rng.standard_normal((size, size), np.float32)) / 8 + np.eye(size)
    return {"lower": lower.astype(np.float32), "b": rng.standard_normal((size, 20), np.float32)}


def expected(lower, b) -> dict[str, np.ndarray]:
    return {"x": np.linalg.solve(lower.astype(np.float64), b)}
