"""Matrix multiplication on the GPU: 16-bit operands on tensor cores within the bound that
cuda/mma/mma.cuh states, all others in the exact order, over layouts, strides and odd shapes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest

import eventtensor as et
from eventtensor.interp.numbers import matmul
from eventtensor.ir.plan import Plan
from tests.backend import conftest as lab
from tests.gpu.batch import Arrays, Launch, launch_all
from tests.gpu.variants import cuda_kernel

SIZES = (1, 3, 8, 16, 17, 33, 64, 100)
MOST = 4096
PAD = 3  # columns before a slice, so that its rows are aligned to nothing
DTYPES = {"bf16": et.bf16, "f16": et.f16, "f32": et.f32}


@et.task
def plain(a, b, out):
    out[:] = a @ b


@et.task
def right_rows(a, b, out):
    """Both operands have K contiguous."""
    out[:] = a @ b.T


@et.task
def left_columns(a, b, out):
    out[:] = a.T @ b


@et.task
def both_turned(a, b, out):
    out[:] = a.T @ b.T


@et.task
def rounded(a, b, out):
    """The left operand is made here and kept in 16 bits."""
    out[:] = (a * 0.5).cast(et.bf16) @ b.T


# layout: (task kind, left is (m, k), right is (k, n))
LAYOUTS = {
    "plain": (plain, True, True), "right_rows": (right_rows, True, False),
    "left_columns": (left_columns, False, True), "both_turned": (both_turned, False, False),
}


def products(dtype: et.DType, layout: str) -> et.Program:
    """One layout, whole and as a slice of something wider."""
    p = et.Program("products")
    m, k, n = (et.dim(d, max=MOST) for d in "mkn")
    kind, a_rows, b_rows = LAYOUTS[layout]
    a_shape, b_shape = (m, k) if a_rows else (k, m), (k, n) if b_rows else (n, k)
    for pad in (0, PAD):
        a = p.input(f"a_{pad}", (a_shape[0], a_shape[1] + pad), dtype)
        b = p.input(f"b_{pad}", (b_shape[0], b_shape[1] + pad), dtype)
        out = p.output(f"out_{pad}", (m, n), et.f32)
        reads = lambda a=a, b=b, s=a_shape, t=b_shape, pad=pad: (
            a[0 : s[0], pad : s[1] + pad], b[0 : t[0], pad : t[1] + pad])
        p.call(kind, name=f"{layout}_{pad}", grid=(), reads=reads,
               writes=lambda out=out: out[:, :])
    return p


def cast_product() -> et.Program:
    p = et.Program("cast_product")
    m, k, n = (et.dim(d, max=MOST) for d in "mkn")
    a, b = p.input("a", (m, k), et.f32), p.input("b", (n, k), et.bf16)
    out = p.output("out", (m, n), et.f32)
    p.call(rounded, name="go", grid=(), reads=lambda: (a[:, :], b[:, :]), writes=lambda: out[:, :])
    return p


def operands(arrays: Arrays, layout: str, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """What a call multiplies, as (m, k) and (k, n)."""
    _, a_rows, b_rows = LAYOUTS[layout]
    a, b = (arrays[f"{side}_{pad}"][:, pad:] for side in "ab")
    return a if a_rows else a.T, b if b_rows else b.T


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray, exact: bool) -> None:
    if exact:
        np.testing.assert_array_equal(found, matmul(a, b))
        return
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    bound = a.shape[1] * 2.0**-24 * (np.abs(wide_a) @ np.abs(wide_b))
    error = np.abs(found - wide_a @ wide_b)
    assert (error <= bound).all(), f"{a.shape} @ {b.shape}: {(error / bound).max()}"


def filled(plan: Plan, shapes: Iterable[tuple[int, int, int]]) -> list[Launch]:
    """A launch for each (m, k, n)."""
    found = []
    for m, k, n in shapes:
        dims = {"m": m, "k": k, "n": n}
        found.append((dims, lab.make_arrays(plan, dims, seed=m * 10000 + k * 100 + n)))
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_every_shape(dtype: str, layout: str) -> None:
    plan = lab.make_plan(products(DTYPES[dtype], layout))
    sizes = SIZES if dtype != "f32" else SIZES[::3]  # the exact order takes NumPy a while
    odd = ((16, 4096, 1), (300, 200, 257), (1, 512, 512))
    with cuda_kernel(plan) as kernel:
        for arrays in launch_all(kernel, filled(plan, (*product(sizes, repeat=3), *odd))):
            for pad in (0, PAD):
                check(arrays[f"out_{pad}"], *operands(arrays, layout, pad), dtype == "f32")


def test_a_value_that_was_cast_is_multiplied_in_16_bits() -> None:
    plan = lab.make_plan(cast_product())
    with cuda_kernel(plan) as kernel:
        assert "et::Matrix<et::bf16>{v" in kernel.source
        for arrays in launch_all(kernel, filled(plan, product((1, 17, 64), repeat=3))):
            left = (arrays["a"] * np.float32(0.5)).astype(et.bf16.numpy)
            check(arrays["out"], left, arrays["b"].T, exact=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_are_the_same_wherever_an_operand_lies(layout: str) -> None:
    """The order of the sums hangs on the shape, not on alignment: slices give what copies give."""
    plan = lab.make_plan(products(et.bf16, layout))
    launches = filled(plan, ((17, 100, 33), (64, 64, 64), (16, 500, 5)))
    for _, arrays in launches:
        for side in "ab":
            arrays[f"{side}_{PAD}"][:, PAD:] = arrays[f"{side}_0"]
    with cuda_kernel(plan) as kernel:
        for arrays in launch_all(kernel, launches):
            np.testing.assert_array_equal(arrays[f"out_{PAD}"], arrays["out_0"])
