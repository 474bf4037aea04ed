"""What stays in the shared memory of a cluster: right, and the same bits, launch after launch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gpu.variants import cuda_kernel
from support.clusters import (
    Arrays,
    clustered,
    scaled_parts,
    scaled_parts_arrays,
    split_product,
    split_product_arrays,
)

import eventtensor as et

PROGRAMS: dict[str, tuple[et.Program, Callable[[int], tuple[Arrays, np.ndarray]], int, float]] = {
    "scaled parts": (scaled_parts(), scaled_parts_arrays, 8, 1e-4),
    "parts of a product": (split_product(), split_product_arrays, 64, 2e-2),
}


@pytest.mark.parametrize("workers", (0, 4, 12))
@pytest.mark.parametrize("name", PROGRAMS)
def test_members_of_clusters_take_from_each_other(name: str, workers: int) -> None:
    program, make, most, near = PROGRAMS[name]
    with cuda_kernel(clustered(program), workers=workers) as kernel:
        print(f"{kernel.workers} workers in clusters of {kernel.image.cluster}")
        for tokens in (most, 1, most // 2 + 1):
            given, exact = make(tokens)
            seen = set()
            for _ in range(50):
                mine = {n: x.copy() for n, x in given.items()}
                kernel.launch({"T": tokens}, mine)
                np.testing.assert_allclose(mine["o"], exact, rtol=near, atol=near)
                seen.add(mine["o"].tobytes())
            assert len(seen) == 1
