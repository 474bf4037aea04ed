"""Random arguments for the MoE example, and what it should compute, in float64 NumPy."""

from __future__ import annotations

import numpy as np

from examples.moe import EXPERTS, HIDDEN, TOP, WIDTH


def moe_arrays(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-2]))

    return {
        "x": rng.standard_normal((n, WIDTH), np.float32),
        "router": normal(WIDTH, EXPERTS),
        "w_gate": normal(EXPERTS, WIDTH, HIDDEN),
        "w_up": normal(EXPERTS, WIDTH, HIDDEN),
        "w_down": normal(EXPERTS, HIDDEN, WIDTH),
        "out": np.empty((n, WIDTH), np.float32),
    }


def moe_reference(v: dict[str, np.ndarray]) -> np.ndarray:
    x, router = v["x"].astype(np.float64), v["router"].astype(np.float64)
    logits = x @ router
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    chosen = np.argsort(-p, axis=1, kind="stable")[:, :TOP]
    weights = np.take_along_axis(p, chosen, axis=1)
    weights /= weights.sum(axis=1, keepdims=True)
    out = np.zeros_like(x)
    for i, row in enumerate(x):
        for k, e in enumerate(chosen[i]):
            g = row @ v["w_gate"][e]
            h = g / (1 + np.exp(-g)) * (row @ v["w_up"][e])
            out[i] += weights[i, k] * (h @ v["w_down"][e])
    return out
