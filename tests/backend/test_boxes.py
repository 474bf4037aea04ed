"""Which tensors bulk copies take boxes of, and what the driver is told about them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda import CudaSource, generate
from eventtensor.codegen.cuda.maps import MOST, MappedTensor, PagedTensor
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import Misaligned, StuckWait
from eventtensor.ir.expr import Const
from eventtensor.ir.plan import Plan
from eventtensor.runtime.cuda import driver as cuda_driver
from eventtensor.runtime.cuda.cuda_artifact import read, save
from eventtensor.runtime.cuda.cuda_kernel import image_of
from eventtensor.runtime.cuda.device_kernel import DeviceKernel
from eventtensor.runtime.cuda.tensor_maps import encode_tensor_maps
from tests.support.emulated import emulated_kernel
from tests.support.fake_driver import FakeDriver, installed
from tests.support.streams import gathered, in_parts, joined, packed, packed_product, panels_shape
from tests.support.streams import wide_layers as layers

WORDS = 16  # of a map, of which the fake driver fills 7: known, address, width, rows, stride, box


def plan_of(program: et.Program, **options: bool) -> Plan:
    plan = run_passes(program, Options(target="cuda", schedule="static", **options)).plan
    assert plan is not None
    return plan


def made(program: et.Program, **options: bool) -> CudaSource:
    return generate(plan_of(program, **options))


@pytest.mark.parametrize("make, maps", [
    (lambda: packed(most=128), (MappedTensor("x", 1024),)),
    (in_parts, (MappedTensor("x", 1024),)),
    (joined, (MappedTensor("x", 512),)),
    # another product has what its body has made
    (layers, (MappedTensor("h", 512),)),
    (gathered, ()),
    (packed, ()),  # of few columns
], ids=["packed", "in_parts", "joined", "layers", "gathered", "few"])
def test_x_comes_in_boxes_where_it_lies_in_plain_rows(
    make: Callable[[], et.Program], maps: tuple[MappedTensor | PagedTensor, ...]
) -> None:
    found = made(make())
    assert found.maps == maps
    assert {m.tensor for m in found.maps} <= set(found.aligned)
    assert ("const __grid_constant__ Maps maps" in found.text) is bool(maps)


@pytest.mark.parametrize("panels, k, bundle, pages", [
    (4, 1024, 1, [PagedTensor("w", 32768, 4096, 4)]),
    (8, 1024, 2, []),  # two pieces, a copy each
    (8, 1024, 4, []),  # a page is one piece anyway
    (5, 1024, 1, []),  # a group that is not whole
    (4, 1440, 1, []),  # short spans
], ids=["apart", "pairs", "together", "in_part", "short"])
def test_pieces_of_a_page_come_in_one_copy(
    panels: int, k: int, bundle: int, pages: list[PagedTensor]
) -> None:
    found = made(packed(panels, k, 128, 8, bundle=bundle))
    assert [m for m in found.maps if isinstance(m, PagedTensor)] == pages
    assert ("et::Paged{0, args.w}" in found.text) is bool(pages)


def test_who_brings_x_looks_for_it_before_the_task_has_waited() -> None:
    text = made(layers()).text
    body = text[text.index("bool body_layer(") :].split("\n}\n")[0]
    ahead, wait = (
        re.search(r"et::begin_activation_load_after<.*, (args\.cell\.layer_done, .*)\);", body),
        body.index("et::ev_wait(worker, args.cell.layer_done"),
    )
    assert ahead is not None and ahead.start() < wait
    assert ahead[1] == "args.cell.layer_done, (1 <= l) ? l - 1 : 0, (1 <= l) ? 8 : 0"
    assert (
        "et::begin_activation_load_after"
        not in generate(plan_of(layers(), debug=True), debug=True).text
    )


def test_a_wait_for_x_that_is_stuck_is_over_for_those_who_bring_it() -> None:
    """They look at the same cell, of which more is expected than comes."""
    plan = plan_of(layers())
    events = tuple(replace(e, count=Const(9)) if e.name == "layer_done" else e for e in plan.events)
    dims = {"n": 20, "depth": 2}
    shapes = {"first": (20, 512), "last": (20, 512), "w": (2, *panels_shape(32, 512, 2))}
    arrays = {name: np.zeros(shape, et.bf16.numpy) for name, shape in shapes.items()}
    with emulated_kernel(replace(plan, events=events), 3, wait_limit_s=0.3) as kernel, \
            pytest.raises(StuckWait, match=r"layer_done\[0\], expected 9, seen 8"):
        kernel.launch(dims, arrays)


def test_what_is_not_streamed_needs_no_maps() -> None:
    assert made(packed(most=128), stream=False).maps == ()


def many(count: int) -> et.Program:
    n, p = et.dim("n", max=128), et.Program("many")
    w = p.weight("w", panels_shape(1, 512), et.bf16)
    for k in range(count):
        x, y = p.input(f"x{k}", (n, 512), et.bf16), p.output(f"y{k}", (n, 16), et.f32)
        p.call(packed_product, name=f"go{k}", grid=(1,),
               reads=lambda i, x=x: (x[:, :], w[:, :, :, :, :, :, :]),
               writes=lambda i, y=y: y[:, :])
    return p


def test_maps_have_room_among_the_arguments() -> None:
    found = made(many(MOST + 1))
    assert [m.tensor for m in found.maps] == [f"x{k}" for k in range(MOST)]
    product = r"et::wide_gemm<et::bf16, 1024, 256, \d+, et::N128"
    assert len(re.findall(f"{product}, true>", found.text)) == MOST
    assert len(re.findall(f"{product}>", found.text)) == 1


def test_the_driver_is_told_rows_and_boxes() -> None:
    maps = (MappedTensor("h", 512), MappedTensor("empty", 64), PagedTensor("w", 65536, 8192, 2))
    with installed(FakeDriver):
        found = encode_tensor_maps(
            maps, {"h": 4096, "empty": 256, "w": 512}, {"h": 7 * 1024, "empty": 0, "w": 5 * 65536}
        )
    assert found.ctypes.data % 64 == 0
    words = found.view(np.uint64).reshape(-1, WORDS)[:, 1:7].tolist()
    assert words == [
        [4096, 512, 7, 1024, 64, 16], [4096, 512, 7, 1024, 64, 64],
        [256, 64, 1, 128, 64, 16], [256, 64, 1, 128, 64, 64],
        [512, 256, 32, 5, 2048, 65536],
    ]
    assert found.view(np.uint64).reshape(-1, WORDS)[-1, 7:10].tolist() == [256, 4, 2]


def test_a_saved_kernel_has_its_maps_and_asks_for_aligned_rows(tmp_path: Path) -> None:
    plan = plan_of(packed(4, most=128, total=8))
    save(image_of(plan, Options(target="cuda"), generate(plan), "sm_90a", b"code"), tmp_path)
    image = read(tmp_path)
    assert image.maps == (MappedTensor("x", 1024), PagedTensor("w", 32768, 4096, 4))
    driver = FakeDriver(image.rank, 4)
    driver.maps = True
    with installed(lambda: driver):
        kernel = DeviceKernel(image, cuda_driver.device(0))
        places = {"x": 4096, "w": 8192, "y": 16384}
        kernel._step(1, {"n": 5}, places, ())(0)
        (launch,) = driver.launches
        told = (ctypes.c_uint64 * WORDS).from_address(launch.maps)
        assert list(told[1:5]) == [4096, 1024, 5, 2048]
        with pytest.raises(Misaligned, match="'x' is streamed"):
            kernel._step(2, {"n": 5}, {**places, "x": 4098}, ())
        kernel.close()
