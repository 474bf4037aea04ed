"""CUDA source of plans: kept text, what stands around shared loops, errors. Where nvcc is on PATH
every example is compiled for sm_90a; no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from shutil import which
from types import SimpleNamespace

import pytest
from blocks import blocks
from cholesky import cholesky
from mlp import mlp
from moe import moe
from moe_layers import moe_layers
from row_sum import row_sum

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.config import Options, environment
from eventtensor.errors import (
    CompileFailed,
    DeviceFailed,
    NoCompiler,
    NoDevice,
    NoTrace,
    UnboundedTile,
)
from eventtensor.ir.walk import evaluate
from eventtensor.runtime import cuda_build, cuda_driver
from eventtensor.runtime.build import DEVICE
from eventtensor.runtime.cuda import CudaKernel

GOLDEN = Path(__file__).parent.parent / "golden"
EXAMPLES = {f.__name__: f for f in (row_sum, mlp, moe, moe_layers, blocks, cholesky)}
SCHEDULES = ("static", "ticket", "push")
ARCHITECTURE = "sm_90a"


@pytest.mark.parametrize("name, schedule", [("row_sum", "static"), ("ragged", "push")])
def test_source_is_as_kept(lab, name: str, schedule: str) -> None:
    text = generate(lab.plan(lab.programs[name](), schedule)).text
    path = GOLDEN / f"{name}_{schedule}.cu"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_shared_loop_stands_between_barriers(lab, name: str, schedule: str) -> None:
    """A loop that the threads share either follows a barrier or fills fresh memory, and a barrier
    comes after its end."""
    lines = generate(lab.plan(EXAMPLES[name](), schedule)).text.split("\n")
    shared = [k for k, line in enumerate(lines) if "et::lane();" in line]
    assert shared
    for k in shared:
        depth = len(lines[k]) - len(lines[k].lstrip())
        if lines[k].rstrip().endswith("{"):
            end = next(j for j in range(k + 1, len(lines)) if lines[j] == " " * depth + "}")
        else:
            end = k
        assert lines[end + 1].strip() == "et::sync();", lines[k]


@pytest.mark.parametrize("name", EXAMPLES)
def test_only_one_thread_of_a_block_notifies(lab, name: str) -> None:
    """A notify lies inside `if (et::leads())`, after a barrier of the whole task."""
    lines = generate(lab.plan(EXAMPLES[name](), "push")).text.split("\n")
    for k, line in enumerate(lines):
        if "et::ev_notify(" in line:
            head = max(j for j in range(k) if "if (et::leads())" in lines[j])
            assert lines[head - 1].strip() == "et::sync();"
            assert not any(text == "  }" for text in lines[head:k])


def test_the_arena_holds_the_temporaries_of_the_largest_task(lab) -> None:
    made = generate(lab.plan(lab.programs["carried"]()))
    tile = 8 * 16 * 4  # x @ w of a full tile; a smaller n has smaller tiles
    assert evaluate(made.arena, {"n": 100, "layers": 2}) == tile
    assert evaluate(made.arena, {"n": 3, "layers": 2}) == 3 * 16 * 4


def test_a_tile_of_unknown_size_is_refused(lab) -> None:
    plan = lab.plan(moe())
    free = tuple(replace(t, bound=None) for t in plan.program.tensors)
    with pytest.raises(UnboundedTile, match="elements"):
        generate(replace(plan, program=replace(plan.program, tensors=free)))


def test_a_trace_is_refused_before_a_device_is_looked_for(lab) -> None:
    with pytest.raises(NoTrace):
        CudaKernel(lab.plan(row_sum()), Options(target="cuda", trace=True))


@pytest.fixture
def no_bindings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    for module in ("driver", "nvrtc"):
        monkeypatch.setitem(sys.modules, f"cuda.bindings.{module}", None)
    for cached in (cuda_driver.bindings, cuda_driver.device):
        cached.cache_clear()
    yield
    for cached in (cuda_driver.bindings, cuda_driver.device):
        cached.cache_clear()


def test_without_bindings_the_error_says_what_to_install(lab, no_bindings) -> None:
    with pytest.raises(NoDevice, match=r"cuda\.bindings") as caught:
        CudaKernel(lab.plan(row_sum()), Options(target="cuda"))
    assert "cuda-bindings" in str(caught.value)


def test_a_refusal_of_the_driver_names_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    status = IntEnum("CUresult", {"CUDA_ERROR_OUT_OF_MEMORY": 2})
    refusal = status.CUDA_ERROR_OUT_OF_MEMORY
    fake = SimpleNamespace(cuMemAlloc=lambda _: (refusal, None), cuInit=lambda _: (refusal,))
    monkeypatch.setattr(cuda_driver, "bindings", lambda _: fake)
    with pytest.raises(DeviceFailed, match="cuMemAlloc answers CUDA_ERROR_OUT_OF_MEMORY"):
        cuda_driver.Buffer().reserve(100)
    with pytest.raises(NoDevice, match="cuInit"):
        cuda_driver.call("cuInit", 0)


def test_without_any_compiler_the_error_names_both(lab, no_bindings, monkeypatch) -> None:
    monkeypatch.setattr(cuda_build, "which", lambda _: None)
    with pytest.raises(NoCompiler, match="nvcc"):
        cuda_build.build_cubin("", "none", ARCHITECTURE, environment())


HAND = """
for (int64_t k = et::lane(); k < out.extent[0]; k += et::lanes())
  out.data[k] = x.data[k * x.stride[0]] * 3.0f;
"""


@et.task(cuda=HAND)
def triple(x, out):
    out[:] = x * 3.0


@et.task(cuda="this is not CUDA;")
def broken(x, out):
    out[:] = x * 3.0


def tripled(kind: et.Task) -> et.Program:
    p = et.Program("tripled")
    x, out = p.input("x", (64,), et.f32), p.output("out", (64,), et.f32)
    p.call(kind, name="go", grid=(), reads=lambda: x[:], writes=lambda: out[:])
    return p


def test_a_hand_tuned_body_stands_between_barriers(lab) -> None:
    text = generate(lab.plan(tripled(triple))).text
    assert "et::sync();\n  hand_go(worker, " in text
    assert "k += et::lanes()" in text


if which("nvcc"):

    @pytest.mark.parametrize("name", EXAMPLES)
    def test_nvcc_takes_an_example(lab, name: str, no_bindings) -> None:
        source = generate(lab.plan(EXAMPLES[name](), "push")).text
        built = cuda_build.build_cubin(source, name, ARCHITECTURE, environment())
        assert built.fresh and built.path.read_bytes()[:4] == b"\x7fELF"
        assert not cuda_build.build_cubin(source, name, ARCHITECTURE, environment()).fresh

    def test_nvcc_takes_the_checks_of_debug(lab, no_bindings) -> None:
        source = generate(lab.plan(lab.programs["carried"](), "ticket"), debug=True).text
        assert cuda_build.build_cubin(source, "carried", ARCHITECTURE, environment()).fresh

    def test_a_hand_tuned_body_that_does_not_compile_is_an_error(lab, no_bindings) -> None:
        good = generate(lab.plan(tripled(triple))).text
        assert cuda_build.build_cubin(good, "tripled", ARCHITECTURE, environment()).fresh
        bad = generate(lab.plan(tripled(broken))).text
        with pytest.raises(CompileFailed, match="nvcc refuses") as caught:
            cuda_build.build_cubin(bad, "tripled", ARCHITECTURE, environment())
        assert "cuda=" in str(caught.value)

    def test_memory_order_is_in_the_instructions(lab, tmp_path: Path) -> None:
        """Release on notify, acquire on wait, and no load through the read-only cache."""
        source, out = tmp_path / "row_sum.cu", tmp_path / "row_sum.ptx"
        source.write_text(generate(lab.plan(row_sum(), "push")).text)
        subprocess.run(
            ["nvcc", "-std=c++17", "-arch=compute_90", "--expt-relaxed-constexpr", "-ptx",
             f"-I{DEVICE}", "-o", str(out), str(source)],
            check=True, capture_output=True,
        )
        ptx = out.read_text()
        for wanted in ("red.release.gpu.add", "ld.acquire.gpu", "atom.acq_rel.gpu.add",
                       "st.release.gpu"):
            assert wanted in ptx
        assert ".nc." not in ptx and "volatile" not in ptx
