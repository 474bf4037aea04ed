"""Attention over a paged cache on the GPU: near plain NumPy whatever lies in unwritten slots, and
the same bits in every launch."""

from __future__ import annotations

import pytest

from eventtensor.config import Options, environment
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from tests.models.test_attention_items import (
    LENGTHS,
    SHAPES,
    arrays,
    border_lengths,
    close,
    cuda_plan,
    dims_of,
)


@pytest.mark.parametrize("name", SHAPES)
def test_tuned_bodies_are_attention_whatever_lies_in_unwritten_slots(name: str) -> None:
    shape = SHAPES[name]
    kernel = CudaKernel(cuda_plan(shape), Options(target="cuda"), environment())
    for lengths in (*LENGTHS, border_lengths(shape)):
        seen = set()
        for _ in range(3):
            got = arrays(shape, lengths)
            kernel.launch(dims_of(got), got)
            close(shape, got, arrays(shape, lengths), str(lengths))
            seen.add(got["mixed"].tobytes())
        assert len(seen) == 1
    kernel.close()
