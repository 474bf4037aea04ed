"""Kernels for a GPU by its name, made where no GPU is: what is shown, compiled and saved, and what
a launch says. NVRTC or nvcc compiles; the driver is a fake one, or none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import (
    BadOption,
    KernelClosed,
    NoDevice,
    NoTrace,
    UnorderedWriters,
    WrongDevice,
)
from eventtensor.runtime.cuda import driver as cuda_driver
from eventtensor.runtime.cuda.cuda_artifact import read
from examples.chain import chain
from examples.mlp import mlp
from examples.row_sum import row_sum
from tests.support.fake_driver import FakeDriver, installed

ARCHITECTURES = {"h200": "sm_90a", "a100": "sm_80", "sm_86": "sm_86", "B200": "sm_100a"}


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libno_such_driver.so.1")
    with installed(cuda_driver.library):
        yield


def sums(n: int = 33) -> dict[str, np.ndarray]:
    return {"a": np.ones((n, 128), np.float32), "c": np.zeros(n, np.float32)}


@pytest.mark.parametrize("device", ARCHITECTURES)
def test_a_gpu_by_its_name_is_compiled_for_and_saved_without_one(
    no_driver: None, device: str, tmp_path
) -> None:
    kernel = et.compile(mlp(), target="cuda", device=device)
    assert kernel.backend.image.architecture == ARCHITECTURES[device]
    kernel.save(tmp_path)
    image = read(tmp_path)
    assert image.architecture == ARCHITECTURES[device] and image.cubin[:4] == b"\x7fELF"
    assert (tmp_path / "kernel.cu").read_bytes() == kernel.source.encode()
    with pytest.raises(NoDevice, match="driver is not there"):
        et.load(tmp_path)
    with pytest.raises(BadOption, match=f"device is '{device}'"):
        et.load(tmp_path, device=device)


@pytest.mark.parametrize("options", ({}, {"schedule": {"up": "ticket"}}, {"debug": True},
                                     {"trace": True}, {"stream": False}, {"handoff": "counter"}))
@pytest.mark.parametrize("target", ("cpu", "cuda"))
def test_the_source_that_is_shown_is_compiled_byte_for_byte(target: str, options: dict) -> None:
    device = "a100" if target == "cuda" else 0
    kernel = et.compile(mlp(), target=target, device=device, **options)
    shown = et.explain(mlp(), target=target, device=device, stage="source", **options)
    library = kernel.backend.library if target == "cpu" else kernel.backend.build.cubin.path
    (compiled,) = (p for p in library.parent.iterdir() if p.suffix in (".cpp", ".cu"))
    assert compiled.read_bytes() == shown.encode()
    assert et.explain(kernel, stage="source") == kernel.source == shown
    kernel.close()


def test_a_kernel_is_shown_by_stages() -> None:
    kernel = et.compile(row_sum(), target="cuda", device="h200")
    plan = et.explain(kernel, stage="plan")
    assert plan == et.explain(row_sum(), target="cuda")
    assert et.explain(kernel) == f"{plan}\n\nsource:\n{kernel.source}"


def test_the_plan_says_what_the_gpu_can_do() -> None:
    """Without bulk copies nothing is streamed, though products still go by pages."""
    h200 = et.explain(mlp(), target="cuda", device="h200", handoff="bulk")
    assert "\nGPU: h200 (sm_90a, 132 multiprocessors)\ngrids:" in h200
    assert "streams " in h200 and "to down by bulk (h): " in h200
    with pytest.raises(BadOption, match="a100 has no bulk copies"):
        et.compile(mlp(), target="cuda", device="a100", handoff="bulk")
    kernel = et.compile(mlp(), target="cuda", device="a100", handoff="counter")
    for a100 in (et.explain(kernel, stage="plan"),
                 et.explain(mlp(), target="cuda", device="a100", handoff="counter")):
        assert "\nGPU: a100 (sm_80, 108 multiprocessors)\ngrids:" in a100
        assert "streams " not in a100 and "to down by counter: asked for" in a100
    assert "bulk_copy" not in kernel.source
    packed = et.explain(chain(packed=True), target="cuda", device="a100")
    assert "streams " not in packed and "reads w[l, i:i + 1, " in packed
    assert " in place by gemm_skinny_in_place: " in packed


def test_without_a_device_the_source_is_for_an_h200(no_driver: None) -> None:
    shown = et.explain(mlp(), target="cuda", stage="source")
    assert shown == et.explain(mlp(), target="cuda", stage="source", device="h200")
    assert shown != et.explain(mlp(), target="cuda", stage="source", device="a100")


@pytest.mark.parametrize("function", (et.compile, et.explain))
def test_devices_and_stages_that_make_no_sense_are_refused(function) -> None:
    with pytest.raises(BadOption, match="unknown device 'h2000'") as e:
        function(mlp(), target="cuda", device="h2000")
    assert "a100" in e.value.hint
    for target in ("cpu", "interp"):
        with pytest.raises(BadOption, match=f"'h200', a GPU, but target is '{target}'") as e:
            function(mlp(), target=target, device="h200")
        assert "target='cuda'" in e.value.hint
    for device in (True, 1.5, None, -1):
        with pytest.raises(BadOption, match="device is"):
            function(mlp(), target="cuda", device=device)


def test_the_interpreter_has_no_source() -> None:
    for what in (mlp(), et.compile(mlp(), target="interp")):
        with pytest.raises(BadOption, match="'interp' has no source"):
            et.explain(what, target="interp", stage="source")
    with pytest.raises(BadOption, match="unknown stage 'ptx'") as e:
        et.explain(mlp(), stage="ptx")
    assert e.value.hint == "one of plan, kernel_ir, source"


@et.task
def copy(x, out):
    out[:] = x


def racy() -> et.Program:
    p = et.Program("racy")
    a, c = p.input("a", (4,), et.f32), p.output("c", (4,), et.f32)
    p.call(copy, grid=(4,), reads=lambda i: a[0:4], writes=lambda i: c[0:4])
    return p


def test_a_program_that_is_refuted_has_a_plan_to_look_at_and_no_source() -> None:
    assert "refuted" in et.explain(racy(), target="cuda", stage="plan")
    with pytest.raises(UnorderedWriters):
        et.explain(racy(), target="cuda", stage="source")


def test_only_a_launch_needs_a_gpu(no_driver: None, tmp_path) -> None:
    kernel = et.compile(row_sum(), target="cuda", device="h200", trace=True)
    kernel.validate(**sums())
    with pytest.raises(NoTrace, match="was not launched"):
        kernel.write_trace(tmp_path / "trace.json")
    for launch in (lambda: kernel(**sums()), lambda: kernel.bind(**sums()), kernel.synchronize):
        with pytest.raises(NoDevice, match="'row_sum' is compiled for h200, and") as e:
            launch()
        assert "kernel.save(folder)" in e.value.hint and "et.load(folder)" in e.value.hint
    kernel.close()
    with pytest.raises(KernelClosed, match="'row_sum' is closed"):
        kernel(**sums())


def test_a_launch_takes_the_gpu_that_is_there_if_the_code_is_for_it() -> None:
    driver = FakeDriver()
    with installed(lambda: driver):
        kernel = et.compile(row_sum(), target="cuda", device="h200", workers=7)
        assert not driver.memory and kernel.backend.workers == 7
        kernel(**sums())
        kernel(**sums())
        assert [x.config.grid_x for x in driver.launches] == [7, 7]
        kernel.close()
        with pytest.raises(KernelClosed):
            kernel(**sums())


def test_a_gpu_of_another_architecture_is_named(tmp_path) -> None:
    with installed(FakeDriver):
        kernel = et.compile(row_sum(), target="cuda", device="b200")
        kernel.save(tmp_path)
        for launch in (lambda: kernel(**sums()), lambda: et.load(tmp_path)):
            with pytest.raises(WrongDevice, match="made for sm_100a, but this GPU is sm_90a") as e:
                launch()
            assert "device='sm_90a'" in e.value.hint
