"""Reductions on the GPU are bit-equal to the interpreter, with half a warp an element and with one
thread, for every length around the sixteen lanes, with NaN, zeros of both signs and ties."""

from __future__ import annotations

import numpy as np
import pytest
from backend import conftest as lab

import eventtensor as et
from eventtensor.config import Options
from eventtensor.runtime.cuda import CudaKernel

LENGTHS = (1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 1000)
KINDS = {"f": et.f32, "i": et.i32, "l": et.i64, "h": et.bf16}

# name: (body of one operand (rows, n), output dtype by operand, rank of the result)
FOLDS = {
    "sum": (lambda x: x.sum(axis=1), 1),
    "max": (lambda x: x.max(axis=1), 1),
    "min": (lambda x: x.min(axis=1), 1),
    "argmax": (lambda x: et.argmax(x), 1),
    "sum_down": (lambda x: x.sum(axis=0), 2),
    "max_down": (lambda x: x.max(axis=0), 2),
    "sum_all": (lambda x: x.sum(axis=1).sum(axis=0) + et.zeros((1,), x.dtype), 0),
    "softmax": (lambda x: x - x.max(axis=1, keepdims=True) + x.sum(axis=1, keepdims=True), 3),
}
Arrays = dict[str, np.ndarray]


def kind_of(name: str) -> et.Task:
    fold = FOLDS[name][0]

    def body(x, out):
        out[...] = fold(x)

    return et.task(name=f"kind_{name}")(body)


def folds() -> et.Program:
    """Every reduction of every dtype; both extents are bound at launch."""
    p = et.Program("folds")
    r, n = et.dim("r", max=100), et.dim("n", max=2000)
    for letter, dtype in KINDS.items():
        x = p.input(f"x_{letter}", (r, n), dtype)
        for name, (_, rank) in FOLDS.items():
            wide = et.i32 if name == "argmax" else et.f32 if letter == "h" else dtype
            shape = {0: (1,), 1: (r,), 2: (n,), 3: (r, n)}[rank]
            out = p.output(f"{name}_{letter}", shape, wide)
            p.call(kind_of(name), name=f"do_{name}_{letter}", grid=(), reads=lambda x=x: x[:, :],
                   writes=lambda out=out, shape=shape: out[tuple(slice(0, s) for s in shape)])
    return p


def awkward(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    """NaN, infinities, zeros of both signs and many equal values."""
    for name, x in arrays.items():
        if name.startswith("x_") and x.dtype.kind == "f":
            special = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]), x.shape)
            x[...] = np.where(rng.random(x.shape) < 0.1, special, x)
            x[::3] = np.where(rng.random(x[::3].shape) < 0.5, 0.0, -0.0)
        elif name.startswith("x_"):
            x[...] = rng.integers(-3, 4, x.shape)
    return arrays


def assert_bits(mine: Arrays, theirs: Arrays) -> None:
    for name, x in theirs.items():
        np.testing.assert_array_equal(mine[name], x, err_msg=name)
        if x.dtype.kind == "f":
            real = ~np.isnan(x)
            np.testing.assert_array_equal(
                np.signbit(mine[name][real]), np.signbit(x[real]), err_msg=name
            )


@pytest.mark.parametrize("special", (False, True))
def test_reductions_have_the_bits_of_the_interpreter(special: bool) -> None:
    plan = lab.make_plan(folds())
    kernel = CudaKernel(plan, Options(target="cuda"))
    for n in LENGTHS:
        for r in (1, 3, 40):
            dims = {"r": r, "n": n}
            arrays = lab.make_arrays(plan, dims, seed=n)
            if special:
                arrays = awkward(arrays, np.random.default_rng(n))
            with np.errstate(all="ignore"):
                wanted = lab.reference(plan, dims, arrays)
            kernel.launch(dims, arrays)
            assert_bits(arrays, wanted)
    kernel.close()
