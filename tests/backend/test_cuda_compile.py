"""Compiles CUDA source for sm_90a, with NVRTC or nvcc, whichever is found: every example under
every schedule, what the compiler says of registers and spills, refusals. No GPU is needed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from shutil import which

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.config import environment
from eventtensor.errors import CompileFailed, NoCompiler
from eventtensor.ir.tensor import DType
from eventtensor.runtime.cuda import cuda_build
from eventtensor.runtime.cuda import driver as cuda_driver
from eventtensor.runtime.cuda.cuda_build import Usage, build_cubin
from eventtensor.runtime.store import recorded_facts
from eventtensor.targets.h200 import H200
from eventtensor.targets.sm80 import A100
from examples.row_sum import row_sum
from tests.backend.test_cuda_source import (
    EXAMPLES,
    SCHEDULES,
    broken,
    normed,
    one_call,
    triple,
    tripled,
)
from tests.support.ptx import ptx_of
from tests.support.streams import packed_product, panels_shape, plan_of

ARCHITECTURE = "sm_90a"


@pytest.fixture
def no_bindings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    cuda_driver.bindings.cache_clear()
    yield
    cuda_driver.bindings.cache_clear()


def test_without_any_compiler_the_error_names_both(no_bindings, monkeypatch) -> None:
    monkeypatch.setattr(cuda_build, "which", lambda _: None)
    with pytest.raises(NoCompiler, match="nvcc"):
        build_cubin("", "none", ARCHITECTURE, environment())


def test_the_usage_of_all_functions_is_read_off_the_report() -> None:
    log = """
ptxas info    : Compiling entry function 'et_kernel' for 'sm_90a'
ptxas info    : Function properties for et_kernel
    360 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 206 registers, used 2 barriers, 400 bytes cumulative stack size, 16 bytes smem
ptxas info    : Function properties for body
    0 bytes stack frame, 20 bytes spill stores, 20 bytes spill loads
"""
    assert Usage.read(log) == Usage(206, 28, 400, 16)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_compiles(lab, name: str, schedule: str) -> None:
    source = generate(lab.plan(EXAMPLES[name](), schedule))
    built = build_cubin(source.text, f"{name}_{schedule}", ARCHITECTURE, environment())
    assert built.fresh and built.path.read_bytes()[:4] == b"\x7fELF"
    usage = built.usage
    assert 0 < usage.registers <= 255
    assert 0 < usage.shared_bytes <= H200.shared_bytes - source.shared_bytes
    if schedule == "static":
        assert usage.spill_bytes == 0


def test_the_cache_keeps_what_the_compiler_said(lab) -> None:
    source = generate(lab.plan(lab.programs["ragged"](), "ticket")).text
    first = build_cubin(source, "ragged", ARCHITECTURE, environment())
    again = build_cubin(source, "ragged", ARCHITECTURE, environment())
    assert first.fresh and not again.fresh and again.usage == first.usage
    facts = recorded_facts(first.path)
    assert facts is not None and facts["usage"]["registers"] == first.usage.registers


@pytest.mark.parametrize("architecture", (ARCHITECTURE, "sm_80"))
def test_tensor_cores_need_no_hopper(lab, architecture: str) -> None:
    program = one_call(normed, ((32, 96), et.f32), ((96, 64), et.bf16), out=(32, 64))
    target = H200 if architecture == ARCHITECTURE else A100
    source = generate(lab.plan(program), target).text
    built = build_cubin(source, "normed", architecture, environment())
    assert built.usage.spill_bytes == 0


def test_an_example_compiles_for_an_older_gpu(lab) -> None:
    source = generate(lab.plan(EXAMPLES["mlp"](), "ticket"), A100).text
    assert build_cubin(source, "mlp", "sm_80", environment()).fresh


@et.task
def copied(x, y):
    y[:] = x


@pytest.mark.parametrize("dtype", (et.u8, et.i32, et.i64))
def test_tables_of_the_loader_have_any_integers(dtype: DType) -> None:
    p, k, count = et.Program("tables"), 512, 40
    given = p.input("given", (count,), dtype, bound=count - 1)
    used = p.scratch("used", (count,), dtype, bound=count - 1)
    x, y = p.input("x", (1, k), et.bf16), p.output("y", (count, 1, 32), et.f32)
    w = p.weight("w", (count, *panels_shape(2, k)), et.bf16)
    p.call(copied, grid=(), reads=lambda: given[:], writes=lambda: used[:])
    p.call(packed_product, grid=(count,), writes=lambda i: y[i, :, :],
           reads=lambda i: (x[:, :], w[used[i], :, :, :, :, :, :, :]))
    source = generate(plan_of(p)).text
    assert "et::LaneTable<" in source
    assert build_cubin(source, "tables", ARCHITECTURE, environment()).usage.spill_bytes == 0


def test_the_checks_of_debug_compile(lab) -> None:
    source = generate(lab.plan(lab.programs["carried"](), "ticket"), debug=True).text
    assert build_cubin(source, "carried", ARCHITECTURE, environment()).fresh


def test_a_hand_tuned_body_that_does_not_compile_is_an_error(lab) -> None:
    good = generate(lab.plan(tripled(triple))).text
    assert build_cubin(good, "tripled", ARCHITECTURE, environment()).fresh
    bad = generate(lab.plan(tripled(broken))).text
    with pytest.raises(CompileFailed, match="refuses") as caught:
        build_cubin(bad, "tripled", ARCHITECTURE, environment())
    assert "cuda=" in str(caught.value)


@pytest.mark.skipif(which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvcc_takes_over_where_there_is_no_nvrtc(lab, no_bindings) -> None:
    source = generate(lab.plan(EXAMPLES["mlp"](), "push")).text
    built = build_cubin(source, "mlp", ARCHITECTURE, environment())
    assert built.fresh and built.usage.registers > 0
    bad = generate(lab.plan(tripled(broken))).text
    with pytest.raises(CompileFailed, match="nvcc refuses"):
        build_cubin(bad, "tripled", ARCHITECTURE, environment())


@pytest.mark.skipif(which("nvcc") is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize("debug", (False, True))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_compiler_leaves_nothing_out(tmp_path: Path, schedule: str, debug: bool) -> None:
    """It has, where it was told wrongly in which memory temporaries lie: all that stands behind
    them, here a sigmoid."""
    text = generate(plan_of(EXAMPLES["mlp"](), schedule=schedule), debug=debug).text
    assert "et::sigmoid(" in text and "rcp.approx" in ptx_of(text, tmp_path)


@pytest.mark.skipif(which("nvcc") is None, reason="nvcc is not on PATH")
def test_memory_order_is_in_the_instructions(lab, tmp_path: Path) -> None:
    """Release on notify, acquire on wait, and no load through the read-only cache."""
    ptx = ptx_of(generate(lab.plan(row_sum(), "push")).text, tmp_path)
    for wanted in ("red.release.gpu.global.add", "ld.acquire.gpu.global",
                   "atom.acq_rel.gpu.global.add", "st.release.gpu.global"):
        assert wanted in ptx
    assert ".nc." not in ptx and "volatile" not in ptx
    assert not re.search(r"\b(ld|st|red|atom)\.[a-z_]+\.gpu\.(?!global)", ptx)
