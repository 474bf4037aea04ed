"""Artifacts: a saved kernel reads back the same, without the compiler, or says what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen import abi
from eventtensor.codegen.cuda import generate
from eventtensor.config import Options
from eventtensor.errors import BadArtifact, StuckWait, WrongDevice
from eventtensor.ir.plan import Plan
from eventtensor.ir.walk import evaluate
from eventtensor.runtime.cuda.cuda_artifact import check_architecture, read, save
from eventtensor.runtime.cuda.cuda_kernel import image_of
from eventtensor.runtime.cuda.image import Image
from eventtensor.runtime.failure import launch_error
from examples.blocks import blocks
from examples.cholesky import cholesky
from examples.mlp import mlp
from examples.moe import moe
from tests.support.fake_driver import FakeDriver, installed

EXAMPLES = {f.__name__: f for f in (mlp, moe, blocks, cholesky)}
SCHEDULES = ("static", "ticket", "push")


def image_for(plan: Plan, architecture: str = "sm_90a") -> Image:
    return image_of(plan, Options(target="cuda"), generate(plan), architecture, b"\x7fELF code")


def saved(plan: Plan, folder: Path) -> Image:
    image = image_for(plan)
    save(image, folder)
    return image


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ("row_sum", "ragged", "carried", *EXAMPLES))
def test_an_artifact_reads_back(lab, name: str, schedule: str, tmp_path: Path) -> None:
    """All but the facts about run-time data, which only the proof and debug need."""
    plan = lab.plan((EXAMPLES | lab.programs)[name](), schedule)
    image, back = saved(plan, tmp_path), read(tmp_path)
    for field in ("architecture", "entry", "zeroed", "aligned", "maps", "rank", "threads",
                  "shared_bytes", "debug", "trace", "cubin", "source", "buffers", "words"):
        assert getattr(back, field) == getattr(image, field), field
    assert back.interface.dims == image.interface.dims
    assert back.interface.calls == image.interface.calls
    assert back.interface.events == image.interface.events
    for mine, theirs in zip(back.interface.tensors, image.interface.tensors, strict=True):
        assert (mine.name, mine.role, mine.dtype) == (theirs.name, theirs.role, theirs.dtype)
        assert mine.shape == theirs.shape
    for size in (1, 7, 20):
        dims = {d.name: min(size, d.max or size) for d in plan.program.dims}
        for field in ("cells", "arena", "workspace", "word_bytes"):
            assert evaluate(getattr(back, field), dims) == evaluate(getattr(image, field), dims)


def test_a_failure_is_told_without_the_plan(lab, tmp_path: Path) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    saved(plan, tmp_path)
    report = np.zeros(1, abi.REPORT.dtype(2))
    report[0] = (abi.STUCK_WAIT, 3, 1, 0, 2, 4, 1, (2, 0))
    told = launch_error(read(tmp_path).interface, {"n": 70}, report[0])
    assert isinstance(told, StuckWait) and str(told) == str(
        launch_error(plan, {"n": 70}, report[0])
    )
    assert "final(2) waits for partial_done[2], expected 4, seen 1" in str(told)


def test_what_is_wrong_with_a_folder_is_said(lab, tmp_path: Path) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    with pytest.raises(BadArtifact, match=r"kernel\.json cannot be read"):
        read(tmp_path / "nowhere")
    saved(plan, tmp_path)
    facts = json.loads((tmp_path / "kernel.json").read_text())

    def write(changed: object) -> None:
        (tmp_path / "kernel.json").write_text(json.dumps(changed))

    write({**facts, "abi": 99})
    with pytest.raises(BadArtifact, match="ABI version 99"):
        read(tmp_path)
    write({k: v for k, v in facts.items() if k != "cells"})
    with pytest.raises(BadArtifact, match="not whole: 'cells'"):
        read(tmp_path)
    write({**facts, "arena": "n +"})
    with pytest.raises(BadArtifact, match="not an expression"):
        read(tmp_path)
    for rubbish in ([], "text"):
        write(rubbish)
        with pytest.raises(BadArtifact, match="not the facts of a kernel"):
            read(tmp_path)
    write(facts)
    (tmp_path / "kernel.cubin").unlink()
    with pytest.raises(BadArtifact, match=r"kernel\.cubin cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize(
    "made, here, fits",
    [
        ("sm_90a", "sm_90a", True), ("sm_80", "sm_80", True), ("sm_80", "sm_86", True),
        ("sm_90a", "sm_100a", False), ("sm_86", "sm_80", False), ("sm_80", "sm_90a", False),
        ("sm_90", "sm_90a", True),
    ],
)
def test_code_runs_on_the_architecture_it_was_made_for(lab, made, here, fits) -> None:
    image = image_for(lab.plan(lab.programs["row_sum"]()), made)
    if fits:
        check_architecture(image, here)
        return
    with pytest.raises(WrongDevice, match=f"made for {made}, but this GPU is {here}"):
        check_architecture(image, here)


def test_a_loaded_kernel_is_bound_and_launched(lab, tmp_path: Path) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    driver = FakeDriver()
    with installed(lambda: driver):
        save(image_for(plan, "sm_80"), tmp_path)
        with pytest.raises(WrongDevice, match="made for sm_80, but this GPU is sm_90a"):
            et.load(tmp_path)
        saved(plan, tmp_path)
        kernel = et.load(tmp_path, device=1, workers=3)
        kernel(**lab.arrays(plan, {"n": 33}))
        assert driver.launches[0].words[0] == 33 and driver.launches[0].config.grid_x == 3
        kernel.save(tmp_path / "again")
        kernel.close()
    assert read(tmp_path / "again") == read(tmp_path)


# ---- without the compiler ------------------------------------------------------------------

BLOCKED = """
import sys
for name in ("islpy", "ml_dtypes", "cuda", "cuda.bindings"):
    sys.modules[name] = None
import eventtensor as et
from eventtensor import load
from eventtensor.errors import NoDevice
from eventtensor.runtime.cuda import driver as cuda_driver
"""
LOAD = BLOCKED + """
cuda_driver.LIBRARY = "libno_such_driver.so.1"
try:
    load(sys.argv[1])
except NoDevice as e:
    print("driver wanted:", e.message)
unwanted = [m for m in sys.modules if m.startswith("eventtensor.") and sys.modules[m] is not None
            and m.split(".")[1] in ("analysis", "lang", "schedule", "interp", "compiler", "kernel")]
assert not unwanted, unwanted
assert "eventtensor.codegen.cpp" not in sys.modules and "eventtensor.ir.tile" not in sys.modules
"""
HALVES = (
    BLOCKED
    + """
import numpy as np
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.cuda.cuda_artifact import read
from eventtensor.runtime.cuda.device_arrays import adopt

class Tensor:  # what is used of a CUDA tensor of torch
    is_cuda, dtype, shape = True, "torch.bfloat16", (4, 8)
    def __init__(self): self.memory = np.zeros((4, 8), np.uint16)
    def stride(self): return (8, 1)
    def data_ptr(self): return self.memory.ctypes.data

dims, arrays = bind(read(sys.argv[1]).interface, adopt({"x": Tensor(), "y": Tensor()}))
assert dims == {"n": 4} and arrays["x"].nbytes == 64
"""
)
NAMES = """
import sys
import eventtensor as et
assert "numpy" not in sys.modules and set(dir(et)) == set(et.__all__)
for name in et.__all__:
    assert getattr(et, name) is not None
from eventtensor import *
assert callable(et.explain) and et.f32 is et.DType.f32
"""


def in_a_child(script: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_loading_needs_neither_the_analysis_nor_a_compiler(lab, tmp_path: Path) -> None:
    saved(lab.plan(moe(), "push"), tmp_path)
    assert "driver wanted" in in_a_child(LOAD, tmp_path)


@et.task
def twice(x, y):
    y[:] = x * 2.0


def test_bf16_of_torch_is_bound_without_ml_dtypes(lab, tmp_path: Path) -> None:
    n, p = et.dim("n", max=64), et.Program("halves")
    x, y = p.input("x", (n, 8), et.bf16), p.output("y", (n, 8), et.bf16)
    p.call(twice, name="go", grid=(n,), reads=lambda i: x[i, :], writes=lambda i: y[i, :])
    saved(lab.plan(p), tmp_path)
    in_a_child(HALVES, tmp_path)


def test_every_name_of_the_package_is_found_when_it_is_used() -> None:
    """A module of the same name would take its place once it is imported."""
    in_a_child(NAMES, Path())
    assert not {m.name for m in iter_modules(et.__path__)} & set(et.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = et.nothing
