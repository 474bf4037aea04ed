"""An LSTM over many sequences: the four gates are parts of one product."""

from __future__ import annotations

import numpy as np

import eventtensor as et

WIDTH, HIDDEN, ROWS = 12, 8, 4


@et.task
def begin(h, c):
    h[:] = et.zeros(h.shape)
    c[:] = et.zeros(c.shape)


@et.task
def step(x, h, c, wx, wh, bias, new_h, new_c):
    enter, forget, cell, leave = et.split(x @ wx + h @ wh + bias, 4, axis=1)
    state = et.sigmoid(forget) * c + et.sigmoid(enter) * et.tanh(cell)
    new_c[:] = state
    new_h[:] = et.sigmoid(leave) * et.tanh(state)


def program() -> et.Program:
    n, steps = et.dim("n", max=256), et.dim("steps", max=128)
    p = et.Program("lstm")
    x = p.input("x", (steps, n, WIDTH), et.f32)
    weights = [p.weight("wx", (WIDTH, 4 * HIDDEN), et.f32),
               p.weight("wh", (HIDDEN, 4 * HIDDEN), et.f32),
               p.weight("bias", (4 * HIDDEN,), et.f32)]
    h, c = (p.output(name, (steps + 1, n, HIDDEN), et.f32) for name in "hc")
    rows = lambda tensor, t, i: tensor[t, i*ROWS : i*ROWS + ROWS, :]
    p.call(begin, grid=(n.tiles(ROWS),), writes=lambda i: (rows(h, 0, i), rows(c, 0, i)))
    with p.loop("t", steps) as t:
        p.call(step, grid=(n.tiles(ROWS),),
               reads=lambda i: (rows(x, t, i), rows(h, t, i), rows(c, t, i), *weights),
               writes=lambda i: (rows(h, t + 1, i), rows(c, t + 1, i)))
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"x": (5, 10, WIDTH), "wx": (WIDTH, 4 * HIDDEN), "wh": (HIDDEN, 4 * HIDDEN),
              "bias": (4 * HIDDEN,)}
    return {name: rng.standard_normal(s, np.float32) / 2 for name, s in shapes.items()}


def expected(x, wx, wh, bias) -> dict[str, np.ndarray]:
    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    h, c = [np.zeros((x.shape[1], HIDDEN))], [np.zeros((x.shape[1], HIDDEN))]
    for row in x:
        enter, forget, cell, leave = np.split(row @ wx + h[-1] @ wh + bias, 4, axis=1)
        c.append(sigmoid(forget) * c[-1] + sigmoid(enter) * np.tanh(cell))
        h.append(sigmoid(leave) * np.tanh(c[-1]))
    return {"h": np.stack(h), "c": np.stack(c)}
