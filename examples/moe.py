"""A small mixture-of-experts layer with one event per expert.

`dispatch` shows the paper's *update*: the tile of token i notifies the events of the experts it was
routed to, and each expert's count is set at run time. `gate_up` shows *trigger*: expert e's event
releases a run-time number of tiles. No tile waits for an expert that it does not use.
"""

from __future__ import annotations

import eventtensor as et

EXPERTS, TOP, WIDTH, HIDDEN, ROWS, COLS = 4, 2, 32, 64, 8, 16


@et.task
def route(x, w, expert, weight):
    logits = x @ w
    p = et.exp(logits - logits.max(axis=1, keepdims=True))
    values, indices = et.topk(p, TOP)
    expert[:] = indices
    weight[:] = values / values.sum(axis=1, keepdims=True)


@et.task
def plan_experts(expert, counts, indptr, tiles, pos, *, n):
    slots = expert.reshape((n * TOP,))
    hot = (slots[:, None] == et.iota(EXPERTS)[None, :]).cast(et.i32)
    seen = hot.cumsum(axis=0)
    count = hot.sum(axis=0)
    ends = count.cumsum(axis=0)
    start = ends - count
    counts[:] = count
    indptr[0:1] = 0
    indptr[1 : EXPERTS + 1] = ends
    tiles[:] = (count + (ROWS - 1)) // ROWS
    rank = (hot * (seen - 1)).sum(axis=1)
    pos[:] = (rank + et.gather(start, slots, axis=0)).reshape((n, TOP))


@et.task
def dispatch(x, xs):
    xs[:] = x + et.zeros((TOP, WIDTH))


@et.task
def gate_up(xs, gate, up, h):
    g = xs @ gate
    h[:] = g * et.sigmoid(g) * (xs @ up)


@et.task
def down(h, w, y):
    y[:] = h @ w


@et.task
def combine(y, weight, out):
    out[:] = (y * weight[:, None]).sum(axis=0)


def moe() -> et.Program:
    n = et.dim("n", max=64)
    p = et.Program("moe")
    x = p.input("x", (n, WIDTH), et.f32)
    router = p.weight("router", (WIDTH, EXPERTS), et.f32)
    w_gate = p.weight("w_gate", (EXPERTS, WIDTH, HIDDEN), et.f32)
    w_up = p.weight("w_up", (EXPERTS, WIDTH, HIDDEN), et.f32)
    w_down = p.weight("w_down", (EXPERTS, HIDDEN, WIDTH), et.f32)
    out = p.output("out", (n, WIDTH), et.f32)

    slots = n * TOP
    expert = p.scratch("expert", (n, TOP), et.i32, bound=EXPERTS - 1, distinct=(1,))
    weight = p.scratch("weight", (n, TOP), et.f32)
    counts = p.scratch("counts", (EXPERTS,), et.i32, bound=slots)
    indptr = p.scratch("indptr", (EXPERTS + 1,), et.i32, bound=slots, monotone=True)
    tiles = p.scratch("tiles", (EXPERTS,), et.i32, bound=slots.tiles(ROWS))
    pos = p.scratch("pos", (n, TOP), et.i32, bound=slots - 1, distinct=True)
    xs = p.scratch("xs", (slots, WIDTH), et.f32)
    h = p.scratch("h", (slots, HIDDEN), et.f32)
    y = p.scratch("y", (slots, WIDTH), et.f32)
    p.fact(lambda i, k: [indptr[expert[i, k]] <= pos[i, k],
                         pos[i, k] < indptr[expert[i, k] + 1]], over=(n, TOP))

    planned = p.events("planned", (), count=1)
    ready = p.events("ready", (EXPERTS,), count=lambda e: counts[e])
    done = p.events("done", (EXPERTS,), count=lambda e: tiles[e] * (WIDTH // COLS))

    def rows(e, t):
        start = indptr[e] + t * ROWS
        return slice(start, et.min(start + ROWS, indptr[e + 1]))

    def cols(c):
        return slice(c * COLS, c * COLS + COLS)

    p.call(route, grid=(n,), reads=lambda i: (x[i : i + 1, :], router[:, :]),
           writes=lambda i: (expert[i : i + 1, :], weight[i : i + 1, :]))
    p.call(plan_experts, grid=(), reads=lambda: expert[:, :],
           writes=lambda: (counts[:], indptr[:], tiles[:], pos[:, :]),
           notifies=lambda: planned[()])
    p.call(dispatch, grid=(n,), reads=lambda i: x[i : i + 1, :],
           writes=lambda i: xs[pos[i, :], :], notifies=lambda i: ready[expert[i, :]])
    p.call(gate_up, grid=(EXPERTS, lambda e: tiles[e], HIDDEN // COLS),
           reads=lambda e, t, c: (xs[rows(e, t), :], w_gate[e, :, cols(c)], w_up[e, :, cols(c)]),
           writes=lambda e, t, c: h[rows(e, t), cols(c)], waits=lambda e, t, c: ready[e])
    p.call(down, grid=(EXPERTS, lambda e: tiles[e], WIDTH // COLS),
           reads=lambda e, t, c: (h[rows(e, t), :], w_down[e, :, cols(c)]),
           writes=lambda e, t, c: y[rows(e, t), cols(c)], notifies=lambda e, t, c: done[e])
    p.call(combine, grid=(n,), reads=lambda i: (y[pos[i, :], :], weight[i, :]),
           writes=lambda i: out[i, :],
           waits=lambda i: (planned[()], done[expert[i, :]]))
    return p
