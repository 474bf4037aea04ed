"""The gradients of attention, one task a head: softmax and its derivative as NumPy has them."""

from __future__ import annotations

import numpy as np

import eventtensor as et

TOKENS, WIDTH = 16, 8
SCALE = WIDTH**-0.5


@et.task
def backward(q, k, v, given, dq, dk, dv):
    score = q @ k.T * SCALE
    weight = et.exp(score - score.max(axis=-1, keepdims=True))
    share = weight / weight.sum(axis=-1, keepdims=True)
    dshare = given @ v.T
    dscore = share * (dshare - (dshare * share).sum(axis=-1, keepdims=True)) * SCALE
    dq[:] = dscore @ k
    dk[:] = dscore.T @ q
    dv[:] = share.T @ given


def program() -> et.Program:
    batch = et.dim("batch", max=64)
    p, shape = et.Program("attention_backward"), (batch, 4, TOKENS, WIDTH)
    given = [p.input(name, shape, et.f32) for name in ("q", "k", "v", "given")]
    found = [p.output(name, shape, et.f32) for name in ("dq", "dk", "dv")]
    p.call(backward, grid=(batch, 4), reads=lambda b, h: tuple(t[b, h, :, :] for t in given),
           writes=lambda b, h: tuple(t[b, h, :, :] for t in found))
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    names = ("q", "k", "v", "given")
    return {n: rng.standard_normal((3, 4, TOKENS, WIDTH), np.float32) for n in names}


def expected(q, k, v, given) -> dict[str, np.ndarray]:
    score = q @ k.swapaxes(-1, -2) * SCALE
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    share = weight / weight.sum(axis=-1, keepdims=True)
    dshare = given @ v.swapaxes(-1, -2)
    dscore = share * (dshare - (dshare * share).sum(axis=-1, keepdims=True)) * SCALE
    return {"dq": dscore @ k, "dk": dscore.swapaxes(-1, -2) @ q,
            "dv": share.swapaxes(-1, -2) @ given}
