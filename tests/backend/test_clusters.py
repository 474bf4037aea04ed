"""What stays in the shared memory of a cluster, in the emulator: members take from each other, in
orders that seeds decide, whatever the number of workers is."""

from __future__ import annotations

import numpy as np
import pytest
from support.clusters import (
    clustered,
    made_for_the_makers,
    order_alone,
    scaled_parts,
    scaled_parts_arrays,
    split_product,
    split_product_arrays,
)
from support.emulated import emulated_kernel

from eventtensor.codegen.cuda import generate
from eventtensor.config import environment
from eventtensor.errors import BadOption, NoRoom
from eventtensor.ir.plan import HandoffKind
from eventtensor.runtime.cuda.build import build_cubin
from eventtensor.target import H200, CudaTarget


@pytest.mark.parametrize("seed", (0, 1))
@pytest.mark.parametrize("workers", (4, 8, 20))
def test_members_add_up_what_all_of_them_have_made(workers: int, seed: int) -> None:
    with emulated_kernel(clustered(scaled_parts()), workers, seed) as kernel:
        assert "take_from_cluster<float>" in kernel.source
        for tokens in (8, 1, 5, 3):
            arrays, exact = scaled_parts_arrays(tokens)
            kernel.launch({"T": tokens}, arrays)
            np.testing.assert_allclose(arrays["o"], exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("members, columns, each, first_axis", [
    (2, 64, 16, True), (8, 64, 32, True), (4, 24, 6, True), (4, 64, 16, False)])
def test_sizes_of_clusters_and_places_of_members(
    members: int, columns: int, each: int, first_axis: bool
) -> None:
    plan = clustered(scaled_parts(16, members, columns, each, first_axis))
    with emulated_kernel(plan, 2 * members, 1) as kernel:
        for tokens in (16, 7):
            arrays, exact = scaled_parts_arrays(tokens, members, columns)
            kernel.launch({"T": tokens}, arrays)
            np.testing.assert_allclose(arrays["o"], exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", (16, 64))
def test_parts_of_a_product_meet_in_shared_memory_beside_the_stream(tokens: int) -> None:
    plan = clustered(split_product(tokens))
    assert [s.wide for s in plan.streams if s.loaded and s.call == "make"] == [True]
    got = []
    for seed, workers in ((0, 4), (1, 12)):
        with emulated_kernel(plan, workers, seed) as kernel:
            for n in (tokens, 1, tokens - 5):
                arrays, exact = split_product_arrays(n)
                kernel.launch({"T": n}, arrays)
                np.testing.assert_allclose(arrays["o"], exact, rtol=2e-2, atol=2e-2)
                got.append(arrays["o"])
    for a, b in zip(got[:3], got[3:], strict=True):
        np.testing.assert_array_equal(a, b)


def test_bits_are_those_of_a_counter() -> None:
    arrays = {}
    for kind in ("cluster", "counter"):
        plan = clustered(split_product(), handoff=(("make_done", kind),))
        with emulated_kernel(plan, 8) as kernel:
            arrays[kind], _ = split_product_arrays(33)
            kernel.launch({"T": 33}, arrays[kind])
    np.testing.assert_array_equal(arrays["cluster"]["o"], arrays["counter"]["o"])


@pytest.mark.parametrize("seed", range(4))
def test_who_takes_waits_even_for_what_it_does_not_need(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, h = (rng.standard_normal(n).astype(np.float32) for n in ((4, 8, 256), (8, 256)))
    arrays = {"x": x, "first": h, "o": np.full_like(x, np.nan), "z": np.full_like(h, np.nan)}
    with emulated_kernel(clustered(order_alone()), 4, seed) as kernel:
        kernel.launch({}, arrays)
    np.testing.assert_array_equal(arrays["o"], x * h)
    np.testing.assert_array_equal(arrays["z"], x[0] + 1)


@pytest.mark.parametrize("seed", range(4))
def test_what_was_made_for_the_makers_is_copied_behind_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal(n).astype(np.float32) for n in ((2, 4, 16), (8, 16)))
    handoff = (("make_done", "cluster"), ("quick_done", "bulk"))
    plan = clustered(made_for_the_makers(), handoff=handoff, stream=False)
    arrays = {"x": x, "y": y, "o": np.full((8, 16), np.nan, np.float32)}
    with emulated_kernel(plan, 4, seed) as kernel:
        kernel.launch({}, arrays)
    exact = (y + x[1][:, None]).sum(axis=0) + x.sum(axis=0).sum(axis=0)
    np.testing.assert_allclose(arrays["o"], exact, rtol=1e-4, atol=1e-4)


def test_workers_come_in_whole_clusters() -> None:
    with pytest.raises(BadOption, match="4 to 128 can run at the same time, in clusters of 4"), \
            emulated_kernel(clustered(scaled_parts()), 6):
        pass
    with emulated_kernel(clustered(scaled_parts()), 0) as kernel:
        assert kernel.workers == 128  # the driver says that 32 clusters fit


def test_it_compiles_beside_what_the_host_leaves_for_it() -> None:
    source = generate(clustered(split_product()))
    built = build_cubin(source.text, "split_product", H200.architecture, environment())
    assert built.usage.shared_bytes <= H200.shared_bytes - source.shared_bytes
    assert built.usage.spill_bytes == 0


def test_what_does_not_fit_among_lines_is_refused() -> None:
    """Where there are up to 16 columns they have 16 KB: as much as 256 rows of results. 512 rows
    take another round besides, whose lines come when the first ones are put away."""
    assert generate(clustered(split_product(32, tile=256))).cluster == 4
    with pytest.raises(NoRoom, match="no room among lines"):
        generate(clustered(split_product(16, tile=512)))


def test_without_clusters_cells_count() -> None:
    plan = clustered(scaled_parts())
    assert [h.kind for h in plan.handoffs if h.event == "make_done"] == [HandoffKind.cluster]
    old = CudaTarget("sm_80", 108, 163 * 1024)
    for made in (generate(plan, old), generate(plan, debug=True)):
        assert made.cluster == 1 and "cluster.cuh" not in made.text
        assert "wait make_done" in made.text
    with emulated_kernel(plan, 6, debug=True) as kernel:
        arrays, exact = scaled_parts_arrays(7)
        kernel.launch({"T": 7}, arrays)
        np.testing.assert_allclose(arrays["o"], exact, rtol=1e-4, atol=1e-5)
