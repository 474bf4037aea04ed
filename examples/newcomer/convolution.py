"""A convolution of images by 3 x 3 weights: halos by `padded`, and one product for each weight."""

from __future__ import annotations

import numpy as np

import eventtensor as et

HEIGHT, WIDTH, CHANNELS, OUT, ROWS = 16, 12, 4, 6, 4


@et.task
def convolve(x, w, bias, out):
    total = et.zeros((ROWS, WIDTH, OUT)) + bias
    for dy in range(3):
        for dx in range(3):
            total = total + x[dy : dy + ROWS, dx : dx + WIDTH] @ w[dy, dx]
    out[:] = et.clip(total, 0.0, 6.0)


def program() -> et.Program:
    images = et.dim("images", max=256)
    p = et.Program("convolution")
    x = p.input("x", (images, HEIGHT, WIDTH, CHANNELS), et.f32)
    w, bias = p.weight("w", (3, 3, CHANNELS, OUT), et.f32), p.weight("bias", (OUT,), et.f32)
    out = p.output("out", (images, HEIGHT, WIDTH, OUT), et.f32)
    around = x.padded((0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    p.call(convolve, grid=(images, HEIGHT // ROWS),
           reads=lambda n, i: (around[n, i*ROWS - 1 : i*ROWS + ROWS + 1, -1 : WIDTH + 1, :],
                               w, bias),
           writes=lambda n, i: out[n, i*ROWS : i*ROWS + ROWS, :, :])
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "x": rng.standard_normal((2, HEIGHT, WIDTH, CHANNELS), np.float32),
        "w": rng.standard_normal((3, 3, CHANNELS, OUT), np.float32),
        "bias": rng.standard_normal(OUT, np.float32),
    }


def expected(x, w, bias) -> dict[str, np.ndarray]:
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    total = sum(wide[:, dy : dy + HEIGHT, dx : dx + WIDTH] @ w[dy, dx]
                for dy in range(3) for dx in range(3))
    return {"out": np.clip(total + bias, 0, 6)}
