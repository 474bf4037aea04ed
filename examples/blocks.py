"""A decoder-like stack, eight grids a layer, written with a loop or unrolled."""

from __future__ import annotations

import eventtensor as et

WIDTH, HIDDEN, TILE, COLS = 64, 128, 16, 32


@et.task
def scale(x, out):
    out[:] = x * et.rsqrt((x * x).sum(axis=1, keepdims=True) * (1.0 / WIDTH) + 1e-5)


@et.task
def matmul(x, w, out):
    out[:] = x @ w


@et.task
def mix(q, k, v, out):
    out[:] = q * et.sigmoid(k) + v


@et.task
def residual(x, y, out):
    out[:] = x + y


@et.task
def add_matmul(h, x, w, out):
    out[:] = h + x @ w


@et.task
def gate(a, b, out):
    out[:] = a * et.sigmoid(a) * b


def blocks(layers: int | None = None) -> et.Program:
    """`layers` None: a symbolic loop; else that many layers, written out."""
    n = et.dim("n", max=4096)
    depth = et.dim("L", max=256) if layers is None else layers
    p = et.Program("blocks" if layers is None else f"blocks_{layers}")
    h = p.state("h", (n, WIDTH), et.f32)
    w_qkv = p.weight("w_qkv", (depth, WIDTH, 3 * WIDTH), et.f32)
    w_o = p.weight("w_o", (depth, WIDTH, WIDTH), et.f32)
    w_up = p.weight("w_up", (depth, WIDTH, 2 * HIDDEN), et.f32)
    w_down = p.weight("w_down", (depth, HIDDEN, WIDTH), et.f32)
    x = p.scratch("x", (n, WIDTH), et.f32)
    qkv = p.scratch("qkv", (n, 3 * WIDTH), et.f32)
    a = p.scratch("a", (n, WIDTH), et.f32)
    o = p.scratch("o", (n, WIDTH), et.f32)
    u = p.scratch("u", (n, 2 * HIDDEN), et.f32)
    g = p.scratch("g", (n, HIDDEN), et.f32)
    rows = n.tiles(TILE)

    def r(i):
        return slice(i * TILE, i * TILE + TILE)

    def c(j):
        return slice(j * COLS, j * COLS + COLS)

    def layer(at):
        p.call(scale, grid=(rows,), reads=lambda i: h[r(i), :], writes=lambda i: x[r(i), :])
        p.call(matmul, grid=(rows, 3 * WIDTH // COLS), writes=lambda i, j: qkv[r(i), c(j)],
               reads=lambda i, j: (x[r(i), :], w_qkv[at, :, c(j)]))
        p.call(mix, grid=(rows,), writes=lambda i: a[r(i), :],
               reads=lambda i: (qkv[r(i), 0:WIDTH], qkv[r(i), WIDTH : 2 * WIDTH],
                                qkv[r(i), 2 * WIDTH : 3 * WIDTH]))
        p.call(matmul, grid=(rows, WIDTH // COLS), writes=lambda i, j: o[r(i), c(j)],
               reads=lambda i, j: (a[r(i), :], w_o[at, :, c(j)]))
        p.call(residual, grid=(rows,), writes=lambda i: h[r(i), :],
               reads=lambda i: (h[r(i), :], o[r(i), :]))
        p.call(matmul, grid=(rows, 2 * HIDDEN // COLS), writes=lambda i, j: u[r(i), c(j)],
               reads=lambda i, j: (h[r(i), :], w_up[at, :, c(j)]))
        p.call(gate, grid=(rows,), writes=lambda i: g[r(i), :],
               reads=lambda i: (u[r(i), 0:HIDDEN], u[r(i), HIDDEN : 2 * HIDDEN]))
        p.call(add_matmul, grid=(rows, WIDTH // COLS), writes=lambda i, j: h[r(i), c(j)],
               reads=lambda i, j: (h[r(i), c(j)], g[r(i), :], w_down[at, :, c(j)]))

    if layers is None:
        with p.loop("l", depth) as at:
            layer(at)
    else:
        for at in range(layers):
            layer(at)
    return p
