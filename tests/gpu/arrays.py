"""The examples with arrays to run them on, by one number that decides their sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

import eventtensor as et
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.interface import interface_of
from examples.blocks import blocks
from examples.chain import chain, chain_arrays
from examples.cholesky import TILE, cholesky
from examples.mlp import mlp
from examples.moe import moe
from examples.moe_layers import moe_layers
from examples.moe_reference import moe_arrays
from examples.row_sum import row_sum
from examples.tour import mlp_arrays, row_sum_arrays
from tests.gpu.stored import stored
from tests.support.backends import run_direct

Arrays = dict[str, np.ndarray]
Make = Callable[[int, np.random.Generator], Arrays]


def layers_arrays(n: int, rng: np.random.Generator) -> Arrays:
    one = [moe_arrays(n, rng) for _ in range(3)]
    stacked = {k: np.stack([v[k] for v in one]) for k in ("router", "w_gate", "w_up", "w_down")}
    return {"x": one[0]["x"].copy(), **stacked}


def blocks_arrays(n: int, rng: np.random.Generator) -> Arrays:
    shapes = {
        "w_qkv": (3, 64, 192), "w_o": (3, 64, 64), "w_up": (3, 64, 256), "w_down": (3, 128, 64),
    }
    weights = {k: (rng.standard_normal(s) / 16).astype(np.float32) for k, s in shapes.items()}
    return {"h": rng.standard_normal((n, 64)).astype(np.float32), **weights}


def cholesky_arrays(n: int, rng: np.random.Generator) -> Arrays:
    size = -(-n // TILE) * TILE
    m = rng.standard_normal((size, size))
    return {"a": (m @ m.T + size * np.eye(size)).astype(np.float32)}


def short_chain_arrays(n: int, rng: np.random.Generator) -> Arrays:
    return chain_arrays(1 + n % 12, rng)


@dataclass(frozen=True)
class Example:
    """`rtol` and `atol` are 0 where every operation is IEEE and in a fixed order: bit-equal. Else
    exp and tanh differ by ulps between the device and NumPy, and tensor cores add in an order of
    their own, at most k * 2^-24 * sum |a||b| away before a result is rounded (to bf16: 2^-8)."""

    make: Callable[[], et.Program]
    arrays: Make
    rtol: float = 0.0
    atol: float = 0.0
    norm: float = 0.0


EXAMPLES = {
    "row_sum": Example(row_sum, row_sum_arrays),
    "mlp": Example(mlp, mlp_arrays, 1e-3, 1e-4),
    "moe": Example(moe, moe_arrays, 1e-3, 1e-4),
    "moe_layers": Example(moe_layers, layers_arrays, 1e-3, 1e-4),
    "blocks": Example(blocks, blocks_arrays, 1e-3, 1e-4),
    "cholesky": Example(cholesky, cholesky_arrays),
    "chain": Example(chain, short_chain_arrays, norm=2e-2),
}


@cache
def case(name: str, n: int) -> tuple[dict[str, int], Arrays, Arrays]:
    """Dims, arrays, and what program order makes of them. Not to be changed."""
    def make() -> tuple[dict[str, int], Arrays, Arrays]:
        example = EXAMPLES[name]
        program = example.make().build()
        dims, arrays = bind(interface_of(program), example.arrays(n, np.random.default_rng(n)))
        return dict(dims), arrays, run_direct(program, dims, arrays)

    return stored(f"{name}_{n}", make)


def equal_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Quick, and true of inputs: nothing else is to be asked then."""
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def all_bits(arrays: Arrays) -> bytes:
    return b"".join(arrays[key].tobytes() for key in sorted(arrays))


def assert_near(name: str, got: Arrays, wanted: Arrays, what: str) -> None:
    rtol, atol, norm = EXAMPLES[name].rtol, EXAMPLES[name].atol, EXAMPLES[name].norm
    for key, x in wanted.items():
        if equal_bits(got[key], x):
            continue
        if norm != 0:
            mine, theirs = got[key].astype(np.float64), x.astype(np.float64)
            off = np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)
            assert off <= norm, f"{key} is off by {off:.1e} of its norm, {what}"
        elif rtol == 0:
            np.testing.assert_array_equal(got[key], x, err_msg=f"{key}, {what}")
        else:
            mine, theirs = got[key].astype(np.float64), x.astype(np.float64)
            np.testing.assert_allclose(mine, theirs, rtol, atol, err_msg=f"{key}, {what}")
