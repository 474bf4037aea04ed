"""Row sums in two stages, n symbolic: the event tensor has shape n.tiles(32) and count 4."""

from __future__ import annotations

import eventtensor as et


@et.task
def partial_sum(x, out):
    out[:] = x.sum(axis=1)


@et.task
def final_sum(x, out):
    out[:] = x.sum(axis=1)


def row_sum() -> et.Program:
    n = et.dim("n", max=4096)
    p = et.Program("row_sum")
    a = p.input("a", (n, 128), et.f32)
    b = p.scratch("b", (n, 4), et.f32)
    c = p.output("c", (n,), et.f32)

    def rows(i):
        return slice(i * 32, i * 32 + 32)

    p.call(partial_sum, grid=(n.tiles(32), 4),
           reads=lambda i, j: a[rows(i), j * 32 : j * 32 + 32],
           writes=lambda i, j: b[rows(i), j])
    p.call(final_sum, grid=(n.tiles(32),),
           reads=lambda i: b[rows(i), :], writes=lambda i: c[rows(i)])
    return p
