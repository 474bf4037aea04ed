"""A two-layer MLP over a batch of symbolic size, bf16 weights, f32 arithmetic."""

from __future__ import annotations

import eventtensor as et

WIDTH, HIDDEN, ROWS, COLS = 128, 256, 16, 64


@et.task
def up(x, w, b, h):
    y = x @ w + b
    h[:] = y * et.sigmoid(y)


@et.task
def down(h, w, x, out):
    out[:] = h @ w + x


def mlp() -> et.Program:
    n = et.dim("n", max=4096)
    p = et.Program("mlp")
    x = p.input("x", (n, WIDTH), et.f32)
    w1 = p.weight("w1", (WIDTH, HIDDEN), et.bf16)
    b1 = p.weight("b1", (HIDDEN,), et.f32)
    w2 = p.weight("w2", (HIDDEN, WIDTH), et.bf16)
    h = p.scratch("h", (n, HIDDEN), et.f32)
    out = p.output("out", (n, WIDTH), et.f32)

    def rows(i):
        return slice(i * ROWS, i * ROWS + ROWS)

    def cols(j):
        return slice(j * COLS, j * COLS + COLS)

    p.call(up, grid=(n.tiles(ROWS), HIDDEN // COLS),
           reads=lambda i, j: (x[rows(i), :], w1[:, cols(j)], b1[cols(j)]),
           writes=lambda i, j: h[rows(i), cols(j)])
    p.call(down, grid=(n.tiles(ROWS), WIDTH // COLS),
           reads=lambda i, j: (h[rows(i), :], w2[:, cols(j)], x[rows(i), cols(j)]),
           writes=lambda i, j: out[rows(i), cols(j)])
    return p
