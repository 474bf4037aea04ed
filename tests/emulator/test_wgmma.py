"""Products of warpgroups in the emulator: a kernel written by hand gives what NumPy does, and what
it does wrong is found."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from tests.support.emulated import EmulatedFault, library

KERNEL = Path(__file__).parent / "wgmma_kernel.cu"
ROWS, K, THREADS, SHARED_BYTES = 128, 256, 256, 96 << 10
# what the kernel does wrong: what is said about it
WRONG = {
    "nothing": "",
    "no_landing": "has not landed",
    "no_proxy_fence": "no fence.proxy.async and then",
    "fence_before_landing": "no fence.proxy.async and then",
    "no_barrier_before": "has changed|no fence.proxy.async and then",
    "no_barrier_after": "has changed|no fence.proxy.async and then",
    "no_swizzle": "not swizzled",
    "not_aligned": "not aligned to 1024",
    "other_operand": "asks for another product",
    "other_rows": "asks for another product",
    "swizzled_rows": "A of wgmma is swizzled",
    "overwritten_rows": "numbers are wrong",
    "absent_warp": "have not taken part|asks for another product",
    "absent_lane": "others of them are at|do not come",
    "no_fence": "no wgmma.fence",
    "changed_sums": "sums of wgmma are changed",
    "no_commit": "has not waited for products",
    "no_wait_between": "has changed|no fence.proxy.async and then",
    "no_wait": "has not waited for products",
    "early_read": "numbers are wrong",
    "overwritten": "has changed",
}


def launch(n: int, dtype: et.DType, wrong: str = "nothing", seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    w, x = (rng.standard_normal((k, K)).astype(dtype.numpy) for k in (ROWS, n))
    # Of each warpgroup by spans, panels, halves of these, blocks of 8 by 8.
    split = w.reshape(ROWS // 64, 4, 2, 8, K // 128, 16, 8)
    pages = np.ascontiguousarray(split.transpose(0, 4, 1, 2, 5, 3, 6))
    out = np.zeros((ROWS, n), np.float32)
    shared = np.array([a.ctypes.data for a in (pages, x, out)], np.int64)
    words = np.array([n, dtype is et.f16, list(WRONG).index(wrong)], np.int64)
    said = ctypes.create_string_buffer(512)
    run = library(KERNEL.read_text().replace("NAMES", ", ".join(WRONG))).emu_launch
    failed = run(
        ctypes.c_void_p(shared.ctypes.data), ctypes.c_void_p(words.ctypes.data), None, 1, THREADS,
        ctypes.c_int64(SHARED_BYTES), ctypes.c_uint64(seed), ctypes.c_int64(10**9), said, len(said))
    if failed:
        raise EmulatedFault(said.value.decode())
    if not np.array_equal(out, multiplied(w.astype(np.float64), x.astype(np.float64))):
        raise EmulatedFault("the numbers are wrong")


def multiplied(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """In f64, rounded after every 16 of K."""
    sums = np.zeros((len(w), len(x)))
    for k in range(K):
        sums += w[:, k, None] * x[None, :, k]
        if k % 16 == 15:
            sums = sums.astype(np.float32).astype(np.float64)
    return sums


@pytest.mark.parametrize("dtype", (et.bf16, et.f16), ids=str)
@pytest.mark.parametrize("n", (8, 16, 32, 64))
def test_products_are_those_of_numpy(n: int, dtype: et.DType) -> None:
    for seed in range(4):
        launch(n, dtype, seed=seed)


@pytest.mark.parametrize("wrong", tuple(WRONG)[1:])
def test_what_is_wrong_is_found(wrong: str) -> None:
    with pytest.raises(EmulatedFault, match=WRONG[wrong]):
        for seed in range(10):
            launch(16, et.bf16, wrong, seed)
