"""Attention over a paged cache on the GPU: near plain NumPy whatever lies in unwritten slots, and
the same bits in every launch, whether work items are splits or groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from models.test_attention import (
    LENGTHS,
    SHAPES,
    TUNED,
    Arrays,
    Shape,
    arrays,
    border_lengths,
    close,
    cuda_plan,
    dims_of,
)

from eventtensor.config import Options, environment
from eventtensor.models.attention import Spans
from eventtensor.runtime.cuda.compiled import CudaKernel


@pytest.mark.parametrize("name", SHAPES)
def test_tuned_bodies_are_attention_whatever_lies_in_unwritten_slots(name: str) -> None:
    shape = SHAPES[name]
    kernel = CudaKernel(cuda_plan(shape), Options(target="cuda"), environment())
    for lengths in LENGTHS:
        seen = set()
        for _ in range(3):
            got = arrays(shape, lengths)
            kernel.launch(dims_of(got), got)
            close(shape, got, arrays(shape, lengths), str(lengths))
            seen.add(got["mixed"].tobytes())
        assert len(seen) == 1
    kernel.close()


def launched(shape: Shape, lengths: list[int]) -> Arrays:
    kernel = CudaKernel(cuda_plan(shape), Options(target="cuda"), environment())
    got = arrays(shape, lengths)
    kernel.launch(dims_of(got), got)
    kernel.close()
    return got


@pytest.mark.parametrize("name", TUNED)
def test_items_that_are_splits_or_groups_give_the_same_bits(name: str) -> None:
    shape = SHAPES[name]
    most, lengths = shape.spans.most, border_lengths(shape)
    groups, splits = (
        launched(replace(shape, spans=Spans(most, many)), lengths) for many in (0, 1 << 20)
    )
    assert (groups["span"][0], splits["span"][0]) == (most, 1)
    assert groups["mixed"].tobytes() == splits["mixed"].tobytes()
