"""A chain of matrix-vector products in one loop: every output feeds the next, nothing else does.

At batch 1 a decoder is this chain: the weights of a layer are known long before its input is, so
they can be on their way while the layers before are still at work. Weights may lie packed, panels
of 16 rows in blocks of 8 by 8: a page of the stream is then one copy.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import eventtensor as et

Arrays = dict[str, np.ndarray]
PANEL, BLOCK = 16, 8


@et.task
def copy(x, out):
    out[:] = x


@et.task
def layer(w, x, out):
    out[:] = et.tanh((w @ x[:, None])[:, 0])


@et.task
def packed_layer(w, x, out):
    plain = w.transpose(0, 2, 3, 5, 1, 4, 6).reshape(w.shape[0] * PANEL, x.shape[0])
    out[:] = et.tanh((plain @ x[:, None])[:, 0])


def panel_shape(columns: int) -> tuple[int, ...]:
    """Of 16 rows: spans of columns, of each one panel (two or four could lie together), and of that
    the first 8 rows and the others, in blocks."""
    span = min(128, columns)
    return columns // span, 1, PANEL // BLOCK, span // BLOCK, BLOCK, BLOCK


def pack(w):
    """Weights (layers, rows, columns), NumPy's or torch's, as panels."""
    layers, rows, columns = w.shape
    spans, each, halves, blocks, *_ = panel_shape(columns)
    split = w.reshape(layers, rows // PANEL, each, halves, BLOCK, spans, blocks, BLOCK)
    return split.swapaxes(4, 6).swapaxes(4, 5).swapaxes(3, 4).swapaxes(2, 3)


def chain(width: int = 256, rows: int = 16, packed: bool = False) -> et.Program:
    """`width` is a multiple of `rows`, the rows of weights in one tile."""
    layers = et.dim("layers", max=256)
    p = et.Program(f"chain_{width}")
    first = p.input("first", (width,), et.bf16)
    shape = (width // PANEL, *panel_shape(width)) if packed else (width, width)
    w = p.weight("w", (layers, *shape), et.bf16)
    x = p.scratch("x", (layers + 1, width), et.bf16)
    last = p.output("last", (width,), et.bf16)
    tiles = width // rows

    def tile(i):
        return slice(i * rows, i * rows + rows)

    p.call(copy, name="take", grid=(tiles,), reads=lambda i: first[tile(i)],
           writes=lambda i: x[0, tile(i)])
    with p.loop("l", layers) as at:
        panels = rows // PANEL
        p.call(packed_layer if packed else layer, name="layer", grid=(tiles,),
               reads=lambda i: (
                   w[at, i * panels : i * panels + panels, :, :, :, :, :, :] if packed
                   else w[at, tile(i), :], x[at, :]),
               writes=lambda i: x[at + 1, tile(i)])
    p.call(copy, name="give", grid=(tiles,), reads=lambda i: x[layers, tile(i)],
           writes=lambda i: last[tile(i)])
    return p


def chain_arrays(layers: int, rng: np.random.Generator, width: int = 256) -> Arrays:
    def bf16(x: np.ndarray) -> np.ndarray:
        return x.astype(ml_dtypes.bfloat16)

    w = rng.standard_normal((layers, width, width), np.float32) / np.float32(width**0.5)
    return {"first": bf16(rng.standard_normal(width, np.float32)), "w": bf16(w),
            "last": np.zeros(width, ml_dtypes.bfloat16)}


def chain_reference(v: Arrays) -> np.ndarray:
    """In float64, rounded to bf16 between the layers as the program does."""
    x = v["first"].astype(np.float64)
    for w in v["w"].astype(np.float64):
        x = np.tanh(w @ x).astype(ml_dtypes.bfloat16).astype(np.float64)
    return x
