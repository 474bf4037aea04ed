"""Reductions on the GPU are bit-equal to the interpreter, with half a warp an element and with one
thread, for every length around the sixteen lanes, with NaN, zeros of both signs and ties."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import eventtensor as et
from tests.backend import conftest as lab
from tests.gpu.batch import Arrays, launch_all
from tests.gpu.variants import cuda_kernel

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


def kind_of(name: str) -> et.Task:
    fold = FOLDS[name][0]

    def body(x, out):
        out[...] = fold(x)

    return et.task(name=f"kind_{name}")(body)


def folds(letter: str) -> et.Program:
    """Every reduction of a dtype; both extents are bound at launch."""
    p = et.Program("folds")
    r, n = et.dim("r", max=100), et.dim("n", max=2000)
    x = p.input("x", (r, n), KINDS[letter])
    for name, (_, rank) in FOLDS.items():
        wide = et.i32 if name == "argmax" else et.f32 if letter == "h" else KINDS[letter]
        shape = {0: (1,), 1: (r,), 2: (n,), 3: (r, n)}[rank]
        out = p.output(name, shape, wide)
        p.call(kind_of(name), name=f"do_{name}", grid=(), reads=lambda: x[:, :],
               writes=lambda out=out, shape=shape: out[tuple(slice(0, s) for s in shape)])
    return p


def awkward(x: np.ndarray, rng: np.random.Generator) -> None:
    """NaN, infinities, zeros of both signs and many equal values."""
    if x.dtype.kind == "f":
        special = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]), x.shape)
        x[...] = np.where(rng.random(x.shape) < 0.1, special, x)
        x[::3] = np.where(rng.random(x[::3].shape) < 0.5, 0.0, -0.0)
    else:
        x[...] = rng.integers(-3, 4, x.shape)


def assert_bits(mine: Arrays, theirs: Arrays) -> None:
    for name, x in theirs.items():
        np.testing.assert_array_equal(mine[name], x, err_msg=name)
        if x.dtype.kind == "f":
            real = ~np.isnan(x)
            np.testing.assert_array_equal(
                np.signbit(mine[name][real]), np.signbit(x[real]), err_msg=name
            )


@pytest.mark.parametrize("special", (False, True))
@pytest.mark.parametrize("letter", KINDS)
def test_reductions_have_the_bits_of_the_interpreter(letter: str, special: bool) -> None:
    plan = lab.make_plan(folds(letter))
    launches = []
    for n, r in product(LENGTHS, (1, 3, 40)):
        launches.append(({"r": r, "n": n}, lab.make_arrays(plan, {"r": r, "n": n}, seed=n)))
        if special:
            awkward(launches[-1][1]["x"], np.random.default_rng(n))
    with cuda_kernel(plan) as kernel:
        for (dims, arrays), found in zip(launches, launch_all(kernel, launches), strict=True):
            with np.errstate(all="ignore"):
                assert_bits(found, lab.reference(plan, dims, arrays))
