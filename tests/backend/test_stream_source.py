"""CUDA of programs with streams: the loader's program, what the tasks do with pages, resources."""

from __future__ import annotations

import re

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda import CudaSource, generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options, environment
from eventtensor.runtime.cuda.cuda_build import build_cubin
from eventtensor.targets.h200 import H200
from eventtensor.targets.sm80 import A100
from eventtensor.targets.target import CudaTarget
from examples.chain import chain
from tests.support.emulated import emulated_kernel
from tests.support.streams import PROGRAMS, joined, layers, linear, packed, plan_of
from tests.support.tables import single


def made(program, schedule: str = "static", target: CudaTarget = H200, **options) -> CudaSource:
    state = run_passes(program, Options(target="cuda", schedule=schedule, **options), target)
    assert state.plan is not None
    return generate(state.plan, target)


def test_the_loader_walks_the_same_tiles_with_loads_in_place_of_tasks() -> None:
    text = made(chain(1024, 32)).text
    feed = text[text.index("bool feed_layer(") :]
    grid = text[text.index("bool grid_layer(") :]
    assert "et::StaticTiles(worker, l * 32)" in feed and "et::StaticTiles(worker, l * 32)" in grid
    assert "load_layer(worker, args, l, i);" in feed
    assert re.search(r"worker\.rows\(args\.w \+ .*, 2048, 2048, 2048\);", text)
    everything = text[text.index("bool feed(") : text.index("Args bind(")]
    assert "for (int64_t l = 0; l < args.layers; ++l)" in everything


def test_a_lone_number_of_the_launch_says_where_weights_lie() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(et.bf16.numpy) for shape in ((4, 64), (8, 16, 64)))
    with emulated_kernel(plan_of(single()), 2) as kernel:
        for at in (5, 0, 7):
            y = np.full((4, 16), np.nan, np.float32)
            kernel.launch({}, {"x": x, "w": w, "given": np.array(at, np.int32), "y": y})
            wanted = x.astype(np.float64) @ w[at].astype(np.float64).T
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_only_weights_are_loaded_before_the_launch_has_begun() -> None:
    text = made(linear(16, 96, 48)).text
    load = text[text.index("void load_go(") : text.index("bool feed_go(")]
    assert load.index("worker.wait_for_tasks();") < load.index("worker.whole(args.x")
    assert load.index("worker.whole(args.x") < load.index("worker.rows(args.w")
    body = text[text.index("void body_go(") :]
    assert body.index("worker.pipeline.hold<et::bf16>()") < body.index("et::skinny_gemm<")
    assert body.index("et::skinny_gemm<") < body.index("worker.pipeline.task_end();")


def test_the_number_of_columns_decides_the_order_of_pages_on_both_sides() -> None:
    text = made(packed(most=128)).text
    product = r"et::wide_gemm<et::bf16, 2048, 256, \d+, et::N128, true>\(worker, "
    assert re.search(product + "et::PipelinePanels", text)
    assert "et::N64, true>" in made(packed(most=64)).text
    walk = r"et::GemmTraversal\(.*, 2048, 256, 1, args\.n\), 32768\);"
    assert re.search(r"worker\.panels\(args\.w \+ .*, " + walk, text)
    assert "et::GlobalPanels<256, 1>{" in made(packed(most=128), stream=False).text
    few = made(packed()).text
    assert "et::skinny_gemm<et::bf16, 1," in few and "worker.run<0, 0>(args.w" in few


def test_joined_axes_of_the_other_side_are_read_where_they_lie() -> None:
    text = made(joined()).text
    assert "et::Matrix<et::bf16>{x.data, 1, 512}" in text and "take<et::bf16>" not in text


def test_the_loader_claims_where_tiles_are_claimed() -> None:
    text = made(layers(), "ticket").text
    assert "et::ClaimingScheduler(worker, args.cell.ticket_layer + l)" in text
    assert "auto tiles = et::ForwardedTiles(worker);" in text
    feed = text[text.index("bool feed_layer(") :]
    assert feed.index("worker.wait_for_tasks();") < feed.index("et::ClaimingScheduler")


def test_shared_memory_is_split_between_the_ring_and_temporaries() -> None:
    found = made(chain(1024, 32))
    page, slots = (
        int(re.search(rf"#define {n} (\d+)", found.text)[1])
        for n in ("ET_STAGE_BYTES", "ET_STAGES")
    )
    assert page == 32 * 1024 and slots >= 5
    assert page * slots < found.shared_bytes <= H200.shared_bytes
    assert found.threads == 256 + 32 and found.aligned == ("w",)


def test_without_streams_there_is_no_loader_and_pages_are_used_in_place() -> None:
    for found in (made(chain(1024, 32), stream=False), made(chain(1024, 32), target=A100)):
        assert "ProducerWarp" not in found.text and found.threads == 256
        assert (
            "et::GlobalRows{" in found.text
            and "et::skinny_gemm<et::bf16, 1, 2048, 2048, 2>" in found.text
        )


@pytest.mark.parametrize("schedule", ("static", "ticket"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_compiles_and_keeps_its_registers(name: str, schedule: str) -> None:
    """Local memory would cost a trip to the L2 at every look (device/cuda/roles/worker.cuh)."""
    found = made(PROGRAMS[name][0](), schedule)
    usage = build_cubin(found.text, name, H200.architecture, environment()).usage
    assert usage.registers <= 168 and usage.spill_bytes == 0
    assert usage.shared_bytes + found.shared_bytes <= H200.shared_bytes


def test_other_architectures_take_what_has_no_stream() -> None:
    found = made(chain(256, 16), target=A100)
    assert build_cubin(found.text, "chain", "sm_80", environment()).usage.registers <= 255
