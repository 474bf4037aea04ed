"""Eight programs as somebody writes them who knows NumPy: proved, and right on both back ends."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

import eventtensor as et

NAMES = ("grouped_products", "attention_backward", "convolution", "fft", "beam_search", "bfs",
         "lstm", "triangular_solve")


@pytest.mark.parametrize("target", ["interp", "cpu"])
@pytest.mark.parametrize("name", NAMES)
def test_a_newcomers_program_gives_what_numpy_gives(name: str, target: str) -> None:
    example = import_module(f"examples.newcomer.{name}")
    given = example.inputs(np.random.default_rng(0))
    want = example.expected(**given)
    program = example.program()
    assert et.check(program).ok
    dtypes = {t.name: t.dtype.numpy for t in program.build().tensors}
    out = {n: np.zeros(w.shape, dtypes[n]) for n, w in want.items()}
    kernel = et.compile(program, target=target)
    kernel(**given, **out)
    kernel.close()
    for n, array in out.items():
        np.testing.assert_allclose(array, want[n], rtol=2e-5, atol=2e-5, err_msg=n)
