"""Bodies that wait inside a loop on the GPU: right at every size, and nothing is read too early."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eventtensor as et
from eventtensor.ir.program import Program
from tests.gpu.batch import launch_all
from tests.gpu.stored import stored
from tests.gpu.variants import cuda_kernel, proved
from tests.support.backends import Arrays, copies, make_arrays, run_direct
from tests.support.bases import T, chunk_layers, chunks

MAKERS: dict[str, Callable[[], et.Program]] = {
    "equal": chunks,
    "half": lambda: chunks(T, T // 2),
    "double": lambda: chunks(T, 2 * T),
    "misfit": lambda: chunks(6, 4),
    "layers": chunk_layers,
}
SIZES = (33, 1, 64, 7, 200, 16)


def case(program: Program, n: int) -> tuple[dict[str, int], Arrays, Arrays]:
    """Dims, arrays, and what program order makes of them."""
    dims = {d.name: n if d.name == "n" else 5 for d in program.dims}
    arrays = make_arrays(program, dims)
    return dims, arrays, run_direct(program, dims, arrays)


@pytest.mark.parametrize("schedule", ["static", "ticket"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_hundred_launches_give_what_program_order_does(name: str, schedule: str) -> None:
    state = proved(MAKERS[name](), schedule)
    assert state.plan is not None and state.derived is not None
    assert any(w.loop for ws in state.derived.waits.values() for w in ws)
    wanted = stored(f"chunks_{name}", lambda: {n: case(state.program, n) for n in SIZES})
    turns = [wanted[SIZES[k * k % 7 % len(SIZES)]] for k in range(100)]
    with cuda_kernel(state.plan) as kernel:
        found = launch_all(kernel, [turn[:2] for turn in turns])
        for k, ((dims, _, want), got) in enumerate(zip(turns, found, strict=True)):
            for tensor, array in want.items():
                np.testing.assert_array_equal(got[tensor], array, err_msg=f"launch {k}, {dims}")


@pytest.mark.parametrize("name", MAKERS)
def test_delays_show_no_read_before_its_wait(name: str) -> None:
    state = proved(MAKERS[name](), "ticket")
    assert state.plan is not None
    dims = {d.name: 61 if d.name == "n" else 4 for d in state.program.dims}
    arrays = make_arrays(state.program, dims)
    want = run_direct(state.program, dims, arrays)
    with cuda_kernel(state.plan, debug=True) as kernel:
        for seed in range(8):
            got = copies(arrays)
            kernel.launch(dims, got, delay_seed=seed)
            for tensor, array in want.items():
                np.testing.assert_array_equal(got[tensor], array, err_msg=f"seed {seed}")
