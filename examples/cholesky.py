"""Tiled Cholesky factorisation: a loop over panels, triangular grids, tiles updated in place."""

from __future__ import annotations

import eventtensor as et

TILE = 8


def masked_columns(a):
    """Factor one tile column by column; `a` is updated in place, its lower half is the result."""
    rows = et.iota(TILE)[:, None]
    columns = et.iota(TILE)[None, :]
    for j in et.range(TILE):
        here = (columns == j).cast(et.f32)
        column = (a * here).sum(axis=1, keepdims=True)
        pivot = (column * (rows == j).cast(et.f32)).sum(axis=0, keepdims=True)
        scaled = et.where(rows >= j, column * et.rsqrt(pivot), column)
        row = (scaled * (rows == columns).cast(et.f32)).sum(axis=0, keepdims=True)
        later = et.where((columns > j) & (rows > j), scaled * row, et.zeros((TILE, TILE)))
        a[:] = a * (1.0 - here) + scaled * here - later
    return et.where(rows >= columns, a, et.zeros((TILE, TILE)))


@et.task
def factor(a, out):
    t = et.zeros((TILE, TILE))
    t[:] = a
    out[:] = masked_columns(t)


@et.task
def solve(low, a, out):
    """out @ low.T = a, column by column."""
    columns = et.iota(TILE)[None, :]
    rows = et.iota(TILE)[:, None]
    x = et.zeros((TILE, TILE))
    for j in et.range(TILE):
        here = (columns == j).cast(et.f32)
        row = (low * (rows == j).cast(et.f32)).sum(axis=0, keepdims=True)
        diagonal = (row * here).sum(axis=1, keepdims=True)
        known = (x * row).sum(axis=1, keepdims=True)
        target = (a * here).sum(axis=1, keepdims=True)
        x[:] = x + (target - known) / diagonal * here
    out[:] = x


@et.task
def update(left, right, a, out):
    out[:] = a - left @ right.T


def cholesky() -> et.Program:
    t = et.dim("t", max=512)
    p = et.Program("cholesky")
    a = p.state("a", (t * TILE, t * TILE), et.f32)

    def tile(i, j):
        return a[i * TILE : i * TILE + TILE, j * TILE : j * TILE + TILE]

    with p.loop("k", t) as k:
        p.call(factor, grid=(), reads=lambda: tile(k, k), writes=lambda: tile(k, k))
        p.call(solve, grid=(t - k - 1,),
               reads=lambda i: (tile(k, k), tile(k + 1 + i, k)),
               writes=lambda i: tile(k + 1 + i, k))
        p.call(update, grid=(t - k - 1, lambda i: i + 1),
               reads=lambda i, j: (tile(k + 1 + i, k), tile(k + 1 + j, k),
                                   tile(k + 1 + i, k + 1 + j)),
               writes=lambda i, j: tile(k + 1 + i, k + 1 + j))
    return p
