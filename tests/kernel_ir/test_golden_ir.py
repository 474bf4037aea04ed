"""Whole bodies in kernel IR, as they are printed: before barriers would be seen in text, they are
seen here. UPDATE_GOLDEN=1 writes the files anew; then read the diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import eventtensor as et
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.kernel_text import function_text
from examples import row_sum
from tests.support import streams
from tests.support.kernels import KERNELS, functions, kernel

GOLDEN = Path(__file__).parents[1] / "golden" / "kernel_ir"


def compared(name: str, bodies: dict[str, st.Function]) -> None:
    text = "\n".join(function_text(f) for f in bodies.values())
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", KERNELS)
def test_a_body_is_as_kept(name: str) -> None:
    compared(name, {"go": kernel(name)})


@pytest.mark.parametrize("make", [row_sum.row_sum, streams.layers], ids=["row_sum", "layers"])
def test_the_bodies_of_a_program_are_as_kept(make, request: pytest.FixtureRequest) -> None:
    program: et.Program = make()
    compared(request.node.callspec.id, functions(program))


@pytest.mark.parametrize("name", ["softmax", "carried", "halves"])
def test_a_worker_of_one_thread_has_the_same_statements_without_barriers(name: str) -> None:
    """Lowering is one: where no fold is shared, only the passes differ."""
    one, many = function_text(kernel(name, "cpu")), function_text(kernel(name))
    assert "barrier" not in one and "half_warp" not in one
    assert one.startswith("body go() on 1 thread\n") and many.startswith("body go() on 256 threads")
