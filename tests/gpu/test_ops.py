"""Every tile op in CUDA gives the interpreter's bits (exp, log and tanh: a few ulp)."""

from __future__ import annotations

import pytest
from backend.test_ops import OPS, Results, assert_agrees, both_ways

from eventtensor.runtime.cuda import CudaKernel


@pytest.fixture(scope="module")
def results() -> Results:
    return both_ways(CudaKernel)


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, results: Results) -> None:
    assert_agrees(name, *results[name], rtol=2e-6)
