"""Fourier transforms of many rows: the recursion on even and odd entries, unrolled by the trace."""

from __future__ import annotations

import numpy as np

import eventtensor as et

POINTS, ROWS = 8, 8


def transform(re, im, cos, sin):
    """Rows of complex numbers as two tiles; `cos` and `sin` are those of the whole circle."""
    if re.shape[1] == 1:
        return re, im
    step = POINTS // re.shape[1]
    half = re.shape[1] // 2
    even_re, even_im = transform(re[:, ::2], im[:, ::2], cos, sin)
    odd_re, odd_im = transform(re[:, 1::2], im[:, 1::2], cos, sin)
    c, s = cos[::step][:half], sin[::step][:half]
    turned_re, turned_im = odd_re * c + odd_im * s, odd_im * c - odd_re * s
    return (et.concat([even_re + turned_re, even_re - turned_re], axis=1),
            et.concat([even_im + turned_im, even_im - turned_im], axis=1))


@et.task
def fft(x, cos, sin, out_re, out_im):
    re, im = transform(x, et.zeros_like(x), cos, sin)
    out_re[:] = re
    out_im[:] = im


def program() -> et.Program:
    n = et.dim("n", max=4096)
    p = et.Program("fft")
    x = p.input("x", (n, POINTS), et.f32)
    circle = [p.weight(name, (POINTS,), et.f32) for name in ("cos", "sin")]
    out = [p.output(name, (n, POINTS), et.f32) for name in ("out_re", "out_im")]
    rows = lambda t, i: t[i*ROWS : i*ROWS + ROWS, :]
    p.call(fft, grid=(n.tiles(ROWS),), reads=lambda i: (rows(x, i), *circle),
           writes=lambda i: tuple(rows(t, i) for t in out))
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    angle = 2 * np.pi * np.arange(POINTS) / POINTS
    return {"x": rng.standard_normal((20, POINTS), np.float32),
            "cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}


def expected(x, cos, sin) -> dict[str, np.ndarray]:
    found = np.fft.fft(x)
    return {"out_re": found.real.astype(np.float32), "out_im": found.imag.astype(np.float32)}
