"""The MoE layer in a symbolic layer loop: rows and experts reuse the same scratch in every layer.

Which rows meet across layers is run-time data, so the compiler finds a call that orders the layers
(`plan_experts`) and lets it wait for the experts of the layer before.
"""

from __future__ import annotations

import eventtensor as et
from examples.moe import (
    COLS,
    EXPERTS,
    HIDDEN,
    ROWS,
    TOP,
    WIDTH,
    dispatch,
    down,
    gate_up,
    plan_experts,
    route,
)


@et.task
def combine_add(x, y, weight, out):
    out[:] = x + (y * weight[:, None]).sum(axis=0)


def moe_layers() -> et.Program:
    n, layers = et.dim("n", max=64), et.dim("layers", max=64)
    p = et.Program("moe_layers")
    x = p.state("x", (n, WIDTH), et.f32)
    router = p.weight("router", (layers, WIDTH, EXPERTS), et.f32)
    w_gate = p.weight("w_gate", (layers, EXPERTS, WIDTH, HIDDEN), et.f32)
    w_up = p.weight("w_up", (layers, EXPERTS, WIDTH, HIDDEN), et.f32)
    w_down = p.weight("w_down", (layers, EXPERTS, HIDDEN, WIDTH), et.f32)

    slots = n * TOP
    expert = p.scratch("expert", (layers, n, TOP), et.i32, bound=EXPERTS - 1, distinct=(2,))
    weight = p.scratch("weight", (layers, n, TOP), et.f32)
    counts = p.scratch("counts", (layers, EXPERTS), et.i32, bound=slots)
    indptr = p.scratch("indptr", (layers, EXPERTS + 1), et.i32, bound=slots, monotone=True)
    tiles = p.scratch("tiles", (layers, EXPERTS), et.i32, bound=slots.tiles(ROWS))
    pos = p.scratch("pos", (layers, n, TOP), et.i32, bound=slots - 1, distinct=(1, 2))
    xs = p.scratch("xs", (slots, WIDTH), et.f32)
    h = p.scratch("h", (slots, HIDDEN), et.f32)
    y = p.scratch("y", (slots, WIDTH), et.f32)
    p.fact(lambda a, i, k: [indptr[a, expert[a, i, k]] <= pos[a, i, k],
                            pos[a, i, k] < indptr[a, expert[a, i, k] + 1]],
           over=(layers, n, TOP))

    planned = p.events("planned", (layers,), count=1)
    sent = p.events("sent", (layers, n), count=1)
    ready = p.events("ready", (layers, EXPERTS), count=lambda a, e: counts[a, e])
    done = p.events("done", (layers, EXPERTS),
                    count=lambda a, e: tiles[a, e] * (WIDTH // COLS))

    def cols(c):
        return slice(c * COLS, c * COLS + COLS)

    with p.loop("layer", layers) as at:

        def rows(e, t):
            start = indptr[at, e] + t * ROWS
            return slice(start, et.min(start + ROWS, indptr[at, e + 1]))

        p.call(route, grid=(n,), reads=lambda i: (x[i : i + 1, :], router[at, :, :]),
               writes=lambda i: (expert[at, i : i + 1, :], weight[at, i : i + 1, :]))
        p.call(plan_experts, grid=(), reads=lambda: expert[at, :, :],
               writes=lambda: (counts[at, :], indptr[at, :], tiles[at, :], pos[at, :, :]),
               notifies=lambda: planned[at])
        p.call(dispatch, grid=(n,), reads=lambda i: x[i : i + 1, :],
               writes=lambda i: xs[pos[at, i, :], :],
               notifies=lambda i: (ready[at, expert[at, i, :]], sent[at, i]))
        p.call(gate_up, grid=(EXPERTS, lambda e: tiles[at, e], HIDDEN // COLS),
               reads=lambda e, t, c: (xs[rows(e, t), :], w_gate[at, e, :, cols(c)],
                                      w_up[at, e, :, cols(c)]),
               writes=lambda e, t, c: h[rows(e, t), cols(c)],
               waits=lambda e, t, c: ready[at, e])
        p.call(down, grid=(EXPERTS, lambda e: tiles[at, e], WIDTH // COLS),
               reads=lambda e, t, c: (h[rows(e, t), :], w_down[at, e, :, cols(c)]),
               writes=lambda e, t, c: y[rows(e, t), cols(c)],
               notifies=lambda e, t, c: done[at, e])
        p.call(combine_add, grid=(n,),
               reads=lambda i: (x[i, :], y[pos[at, i, :], :], weight[at, i, :]),
               writes=lambda i: x[i, :],
               waits=lambda i: (planned[at], sent[at, i], done[at, expert[at, i, :]]))
    return p
