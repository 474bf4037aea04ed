"""Tile ops in generated CUDA give the interpreter's bits in the emulator: those whose elements are
found by several threads, and functions that only device headers have."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from eventtensor.config import Options
from eventtensor.ir.plan import Plan
from tests.backend import test_ops as ops
from tests.support.emulated import emulated_kernel

NAMES = (
    "exp2", "log2", "sin", "cos", "erf", "pow", "floor", "ceil", "round_halves", "sign", "sign_i",
    "and_i", "or_l", "xor_b", "not_l", "shl_i", "shr_l", "cumprod0", "cumprod_i", "sort1", "sort0",
    "argsort1", "argsort0_ties", "argsort_line", "argmin", "topk_indices", "cumsum1",
)


@pytest.fixture(scope="module")
def results() -> ops.Results:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(ops, "OPS", {name: ops.OPS[name] for name in NAMES})

        def kernel_of(plan: Plan, options: Options) -> object:
            return stack.enter_context(emulated_kernel(plan, workers=options.workers))

        return ops.both_ways(kernel_of)


@pytest.mark.parametrize("name", NAMES)
def test_an_op_in_the_emulator_agrees_with_the_interpreter(
    name: str, results: ops.Results
) -> None:
    ops.assert_agrees(name, *results[name], rtol=2e-6)
