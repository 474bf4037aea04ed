"""Which way to multiply each architecture takes, and that the compiler takes its code there."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import BadOption
from eventtensor.ir.plan import Plan
from eventtensor.targets.devices import find_device
from eventtensor.targets.gemm import STRATEGIES
from eventtensor.targets.h200 import H200
from tests.backend.test_cuda_source import EXAMPLES
from tests.support.ptx import nvrtc_ptx
from tests.support.streams import layers, linear, packed

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
# The way of a wide product, of a skinny one, and whether its weights come through the pipeline.
TAKEN = {
    "sm_80": ("gemm_wide_in_place", "gemm_skinny_in_place", False),
    "sm_90": ("gemm_wgmma", "gemm_skinny", True),
    "sm_100": ("gemm_wide_in_place", "gemm_skinny", True),
    "sm_120": ("gemm_wide_in_place", "gemm_skinny", True),
}


def plan_for(program: et.Program, device: str) -> Plan:
    state = run_passes(program, Options("cuda", schedule="static"), find_device(device))
    assert state.plan is not None
    return state.plan


def wide() -> et.Program:
    return packed(4, 512, 128, 8, et.bf16, 4)


def ptx_for(plan: Plan, device: str) -> str:
    gpu = find_device(device)
    return nvrtc_ptx(generate(plan, gpu).text, gpu.architecture)


@pytest.mark.parametrize("device", ARCHITECTURES)
def test_wgmma_is_on_hopper_alone(device: str) -> None:
    plan = plan_for(wide(), device)
    assert [(s.strategy, s.is_streamed) for s in plan.streams] == [
        (TAKEN[device][0], device == "sm_90")
    ]
    ptx = ptx_for(plan, device)
    assert ("wgmma" in ptx) == (device == "sm_90")
    assert ("mma.sync" in ptx) == (device != "sm_90")
    assert "tcgen05" not in ptx
    assert ("griddepcontrol" in ptx) == (device != "sm_80")


@pytest.mark.parametrize("device", ARCHITECTURES)
def test_weights_of_skinny_products_stream_where_bulk_copies_exist(device: str) -> None:
    plan = plan_for(linear(k=256, most=8), device)
    assert [(s.strategy, s.is_streamed) for s in plan.streams if s.kind.is_product] == [
        TAKEN[device][1:]
    ]
    ptx = ptx_for(plan, device)
    assert ("cp.async.bulk" in ptx) == (device != "sm_80")
    assert "mma.sync" in ptx and "wgmma" not in ptx


@pytest.mark.parametrize("device", ARCHITECTURES)
@pytest.mark.parametrize("name", ("mlp", "moe", "cholesky"))
def test_examples_compile_for_each_architecture(name: str, device: str) -> None:
    assert "wgmma" not in ptx_for(plan_for(EXAMPLES[name](), device), device)


@pytest.mark.parametrize("device", ("sm_80", "sm_100"))
def test_layers_of_wide_and_skinny_products_compile_without_wgmma(device: str) -> None:
    plan = plan_for(layers(), device)
    assert {s.strategy for s in plan.streams if s.kind.is_product} <= set(TAKEN[device][:2])
    assert "wgmma" not in ptx_for(plan, device)


def test_a_plan_for_another_gpu_is_refused() -> None:
    with pytest.raises(BadOption, match="needs wgmma, which b200 lacks"):
        generate(plan_for(wide(), "sm_90"), find_device("b200"))
    assert generate(plan_for(wide(), "sm_100"), H200).text


def test_explain_names_the_way() -> None:
    text = et.explain(wide(), target="cuda")
    assert "as packed by gemm_wgmma: " in text


def test_a_gpu_without_tensor_cores_has_no_way() -> None:
    bare = replace(H200, capabilities=replace(H200.capabilities, features=frozenset()))
    plan = run_passes(wide(), Options("cuda", schedule="static"), bare).plan
    assert plan is not None and plan.streams == ()


def test_names_of_ways_are_unique() -> None:
    assert len({s.name for s in STRATEGIES}) == len(STRATEGIES)
