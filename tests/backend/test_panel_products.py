"""Products with few columns, page by page: every way that pages and panels fall to the warps."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan
from eventtensor.llm.model.packed_layout import plain_rows
from tests.support.emulated import emulated_kernel
from tests.support.streams import linear, packed, panels_shape

STAGED = 32 * 1024  # bytes of x up to which a product takes it as a whole
# Panels of a task and in all, columns of a row (pages have up to 512 of them), panels of a bundle.
PACKED = {
    "a page for each half of the warps": (3, 4, 1024, et.bf16, 1),
    "two pages": (2, 3, 2048, et.bf16, 1),
    "many pages": (1, 2, 6144, et.f16, 1),
    "more panels than are folded at once": (6, 6, 1024, et.f16, 1),
    "an odd number of pages": (2, 3, 1536, et.bf16, 1),
    "one page": (2, 2, 256, et.bf16, 1),
    "pages of an odd number of steps": (2, 2, 1440, et.bf16, 1),
    "pairs of panels": (4, 6, 2048, et.bf16, 2),
    "pairs, an odd number of pages": (2, 4, 768, et.f16, 2),
    "pairs, short spans": (2, 2, 1440, et.bf16, 2),
    "four panels": (8, 12, 1024, et.f16, 4),
    "more fours than are folded at once": (20, 20, 512, et.bf16, 4),
    "four panels, an odd number of pages": (4, 4, 1152, et.bf16, 4),
    "four panels, short spans": (4, 4, 576, et.bf16, 4),
    "four panels, one step": (4, 8, 32, et.bf16, 4),
}
# Rows of a task and in all, columns of a row: whole pages, and a last one that is smaller.
PLAIN = {"whole pages": (24, 40, 2048), "a smaller last page": (16, 40, 1120)}


def plan_of(name: str, stream: bool, most: int) -> Plan:
    if name in PACKED:
        panels, total, k, dtype, bundle = PACKED[name]
        program = packed(panels, k, most, total, dtype, bundle)
    else:
        rows, out, k = PLAIN[name]
        program = linear(rows, k, out, most=most)
    plan = run_passes(program, Options(target="cuda", schedule="static", stream=stream)).plan
    assert plan is not None
    return plan


def operands(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x and W as the kernel takes them, and the rows of W."""
    rng = np.random.default_rng(len(name))
    if name in PLAIN:
        _, out, k = PLAIN[name]
        w = rng.standard_normal((out, k)).astype(et.bf16.numpy)
        return rng.standard_normal((8, k)).astype(et.bf16.numpy), w, w
    _, total, k, dtype, bundle = PACKED[name]
    x = rng.standard_normal((8, k)).astype(dtype.numpy)
    w = rng.standard_normal(panels_shape(total, k, bundle)).astype(dtype.numpy)
    return x, w, plain_rows(w)


@pytest.mark.parametrize("name", [*PACKED, *PLAIN])
def test_a_column_is_right_and_has_the_same_bits_anywhere(name: str) -> None:
    """From the ring in any order of threads, in place, and beside any number of other columns."""
    x, w, rows = operands(name)
    exact, wide = x.astype(np.float64), rows.astype(np.float64)
    bound = x.shape[1] * 2.0**-24 * (np.abs(exact) @ np.abs(wide).T)
    most = min(8, STAGED // (2 * x.shape[1]))
    seen: dict[int, bytes] = {}
    for stream, seed in ((True, 0), (True, 1), (False, 0)):
        with emulated_kernel(plan_of(name, stream, most), 2, seed) as kernel:
            for n in sorted({1, (most + 2) // 2, most}):
                y = np.full((n, len(rows)), np.nan, np.float32)
                kernel.launch({"n": n}, {"x": x[:n].copy(), "w": w, "y": y})
                assert (np.abs(y - exact[:n] @ wide.T) <= bound[:n]).all(), f"{n=}"
                for c in range(n):
                    bits = y[c].tobytes()
                    assert seen.setdefault(c, bits) == bits, f"{c=} {n=} {stream=} {seed=}"
