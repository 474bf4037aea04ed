"""The CUDA run time against a driver of paper: what is asked of the driver, and in which order."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen import abi
from eventtensor.codegen.cuda import generate
from eventtensor.codegen.cuda.abi import CONTROL, PROGRESS, STAMPS
from eventtensor.config import Options
from eventtensor.errors import (
    BadOption,
    BadStream,
    HostArgument,
    KernelClosed,
    NoDevice,
    NoTrace,
    OutOfMemory,
    StuckWait,
)
from eventtensor.ir.expr import Dim
from eventtensor.ir.plan import Plan
from eventtensor.runtime.cuda import driver as cuda_driver
from eventtensor.runtime.cuda.cuda_kernel import image_of
from eventtensor.runtime.cuda.device_kernel import DeviceKernel
from eventtensor.runtime.cuda.launch import BoundLaunch, LaunchConfig, stream_handle
from eventtensor.runtime.cuda.loaded_kernel import LoadedKernel
from tests.support.device_side import fail, on_device, stamp
from tests.support.fake_driver import FakeDriver, Launched, installed

RANK, WORKERS = 2, 132


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    fake = FakeDriver(RANK)
    with installed(lambda: fake):
        yield fake


@pytest.fixture(scope="module")
def plan(lab) -> Plan:
    return lab.plan(lab.programs["row_sum"]())


def loaded(plan: Plan, **options: bool) -> LoadedKernel:
    made = generate(plan, debug=options.get("debug", False), trace=options.get("trace", False))
    image = image_of(plan, Options(target="cuda", **options), made, "sm_90a", b"code")
    return LoadedKernel(DeviceKernel(image, cuda_driver.device(0), trace_capacity=3))


def arrays(n: int) -> dict[str, SimpleNamespace]:
    return {"a": on_device(np.ones((n, 128), np.float32)),
            "c": on_device(np.zeros(n, np.float32))}


# ---- the driver ----------------------------------------------------------------------------


def test_without_a_driver_the_error_says_so(plan: Plan, monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libno_such_driver.so.1")
    with installed(cuda_driver.library):
        with pytest.raises(NoDevice, match="driver is not there") as caught:
            cuda_driver.device(0)
        assert "libcuda.so.1" in str(caught.value)
        with pytest.raises(NoDevice):
            et.compile(plan.program, target="cuda")


def test_a_refusal_of_the_driver_names_the_call(driver: FakeDriver) -> None:
    driver.answers["cuMemAlloc_v2"] = lambda *_: 2
    with pytest.raises(OutOfMemory, match=r"OUT_OF_MEMORY: .* no 256 bytes"):
        cuda_driver.DeviceBuffer().reserve(100)
    driver.answers["cuInit"] = lambda *_: 100
    with pytest.raises(NoDevice, match="cuInit answers CUDA_ERROR_NO_DEVICE"):
        cuda_driver.device(0)


def test_a_device_is_described_and_another_ones_context_comes_back(driver: FakeDriver) -> None:
    found = cuda_driver.device(1)
    assert found.index == 1 and found.target.architecture == "sm_90a"
    assert found.target.multiprocessors == 132 and found.target.shared_bytes == 227 * 1024
    driver.context = 1000
    with found.active():
        assert driver.context == 1001
    assert driver.context == 1000
    with pytest.raises(BadOption, match="device is 2, but there are 2"):
        cuda_driver.device(2)


def test_more_workers_than_run_at_once_are_refused(plan: Plan, driver: FakeDriver) -> None:
    image = loaded(plan).backend.image
    with pytest.raises(BadOption, match="1 to 132 can run at the same time"):
        DeviceKernel(image, cuda_driver.device(0), workers=133)


# ---- bound steps ---------------------------------------------------------------------------


def test_a_step_is_one_call_of_the_driver(plan: Plan, driver: FakeDriver) -> None:
    kernel, given = loaded(plan), arrays(33)
    step = kernel.bind(**given)
    driver.context = 1000
    driver.log.clear()
    for _ in range(3):
        step()
    assert driver.log == ["cuCtxGetCurrent", "cuLaunchKernelEx"] * 3
    launched = driver.launches[-1]
    assert (launched.config.grid_x, launched.config.block_x) == (WORKERS, 256)
    assert launched.config.shared_bytes == kernel.backend.image.shared_bytes
    assert launched.attributes == [(2, 1)]
    n, a, b, c = launched.words
    assert n == 33 and a == given["a"].memory.ctypes.data and c == given["c"].memory.ctypes.data
    assert driver.holds(b) and launched.shared["capacity"] >= 2
    for name in ("cells", "sets", "control", "report", "progress", "arena"):
        assert driver.holds(int(launched.shared[name])), name


def test_packing_is_over_when_a_step_is_made(plan: Plan, driver: FakeDriver) -> None:
    """A launch passes the very same objects on."""
    step: BoundLaunch = loaded(plan).bind(**arrays(4))
    driver.context = 1000
    seen = []
    driver.answers["cuLaunchKernelEx"] = lambda *args: seen.append(args) or 0
    for _ in range(2):
        step(5)
    assert all(a is b for a, b in zip(*seen, strict=True))


def test_streams_of_all_libraries_are_taken(plan: Plan, driver: FakeDriver) -> None:
    step = loaded(plan).bind(**arrays(5))
    torch, cupy = SimpleNamespace(cuda_stream=11), SimpleNamespace(ptr=12)
    core = SimpleNamespace(__cuda_stream__=lambda: (0, 13))
    for stream, handle in ((None, None), (7, 7), (torch, 11), (cupy, 12), (core, 13)):
        step(stream)
        assert driver.launches[-1].config.stream == handle
    with pytest.raises(BadStream, match="no CUDA stream"):
        stream_handle("default")


def test_a_dependent_launch_is_tried_once_where_it_is_refused(
    plan: Plan, driver: FakeDriver
) -> None:
    kernel = loaded(plan)
    step, other = kernel.bind(**arrays(5)), kernel.bind(**arrays(6))
    step(3, dependent=True)
    assert driver.launches[-1].attributes == [(2, 1), (6, 1)] and kernel.backend.refused == ""

    def refuse(config, *_) -> int:
        place = config.value if isinstance(config, ctypes.c_void_p) else \
            ctypes.addressof(config._obj)
        return int(LaunchConfig.from_address(place).attribute_count == 2)

    driver.answers["cuLaunchKernelEx"] = refuse
    for each in (step, other, step):
        driver.log.clear()
        each(3, dependent=True)
        assert driver.launches[-1].attributes == [(2, 1)]
    assert driver.log.count("cuLaunchKernelEx") == 1
    assert "CUDA_ERROR_INVALID_VALUE" in kernel.backend.refused


def test_a_kernel_that_is_bound_again_and_again_does_not_grow(
    plan: Plan, driver: FakeDriver
) -> None:
    kernel = loaded(plan)
    first = kernel.bind(**arrays(5))
    backend = kernel.backend
    for _ in range(100):
        kernel.bind(**arrays(6))
    assert len(backend._bindings) < 40
    numbers = {int(n) for n in backend._bindings}
    assert 1 in numbers and 101 in numbers, "who has a step, and the last one"
    first()


def test_a_launch_has_ended_when_its_stamp_says_so(plan: Plan, driver: FakeDriver) -> None:
    """More launches than there are stamps."""
    kernel = loaded(plan)
    steps = [kernel.bind(**arrays(n)) for n in (5, 6)]
    numbers = [steps[k % 2]() for k in range(STAMPS + 3)]
    assert numbers == [int(x.shared["number"]) for x in driver.launches] == [*range(1, STAMPS + 4)]
    assert not any(kernel.has_ended(n) for n in numbers)
    for n, launched in zip(numbers, driver.launches, strict=True):
        stamp(launched, RANK, 10 * n)
        assert kernel.has_ended(n) and (n == numbers[-1] or not kernel.has_ended(n + 1))
    assert kernel.has_ended(1), "another has its place"
    with pytest.warns(DeprecationWarning, match="over is called has_ended now"):
        assert kernel.over(1)
    last = kernel.backend.stamps(after=STAMPS)
    assert [(x.number, x.dims, x.began, x.ended) for x in last] == [
        (n, {"n": 6 - n % 2}, 10 * n, 10 * n + 4) for n in numbers[-3:]]
    assert len(kernel.backend.stamps()) == STAMPS


def test_larger_dims_leave_earlier_steps_their_memory(plan: Plan, driver: FakeDriver) -> None:
    kernel = loaded(plan)
    steps = [kernel.bind(**arrays(n)) for n in (10, 100000, 20)]
    for step in steps:
        step()
    small, large, again = driver.launches
    assert large.shared["capacity"] >= 3125 > small.shared["capacity"]
    assert large.shared["cells"] == again.shared["cells"] != small.shared["cells"]
    for launched in driver.launches:
        assert driver.holds(launched.words[2]), "scratch"
        assert all(driver.holds(int(launched.shared[k])) for k in ("cells", "sets", "arena"))
    assert len({int(x.shared["control"]) for x in driver.launches}) == 1
    kernel.close()
    assert not driver.memory


def test_a_bound_array_must_be_on_the_device(plan: Plan, driver: FakeDriver) -> None:
    with pytest.raises(HostArgument, match="'c' is not in device memory"):
        loaded(plan).bind(**{**arrays(5), "c": np.zeros(5, np.float32)})


def test_other_targets_have_no_steps(lab, plan: Plan) -> None:
    kernel = et.compile(plan.program, target="interp")
    with pytest.raises(BadOption, match="bind is for target 'cuda'"):
        kernel.bind()


@et.task
def add_up(x, total):
    total[:] += x.sum(axis=0)


def test_what_accumulates_is_cleared_on_the_stream_of_the_launch(lab, driver: FakeDriver) -> None:
    p = et.Program("total")
    x, total = p.input("x", (8, 16), et.f32), p.output("total", (16,), et.f32)
    p.call(add_up, name="add", grid=(8,), reads=lambda i: x[i : i + 1, :],
           accumulates=lambda i: total[:])
    driver.rank, driver.words = 1, 3
    out = np.full(16, 3, np.float32)
    step = loaded(lab.plan(p)).bind(x=on_device(np.ones((8, 16), np.float32)),
                                    total=on_device(out))
    driver.log.clear()
    step(9)
    assert driver.memsets == [(out.ctypes.data, 64, 9)] and not out.any()
    assert driver.log.index("cuMemsetD8Async") < driver.log.index("cuLaunchKernelEx")


# ---- failures ------------------------------------------------------------------------------


def test_a_failure_is_told_with_its_own_dims_and_the_next_launch_works(
    plan: Plan, driver: FakeDriver
) -> None:
    kernel = loaded(plan)
    good, bad = kernel.bind(**arrays(40)), kernel.bind(**arrays(65))
    good()
    kernel.check()
    driver.run = lambda launched: fail(launched, RANK, 1, (2, 0), 2)
    bad()
    driver.run = lambda _: None
    good()
    with pytest.raises(StuckWait, match=r"final\(2\) waits for partial_done\[2\].*n = 65"):
        kernel.check()
    control = kernel.backend._memory.read_control()
    assert control["abort"] == 0 and control["reported"] == 0
    kernel.check()
    kernel.synchronize()
    driver.run = lambda launched: fail(launched, RANK, 1, (0, 0), 0)
    good()
    with pytest.raises(StuckWait, match="n = 40"):
        kernel.synchronize()


def test_a_look_for_failures_asks_nothing_of_the_driver(plan: Plan, driver: FakeDriver) -> None:
    kernel = loaded(plan)
    kernel.bind(**arrays(4))()
    driver.log.clear()
    kernel.check()
    assert driver.log == []


def test_a_closed_kernel_says_so(plan: Plan, driver: FakeDriver) -> None:
    kernel = loaded(plan)
    step = kernel.bind(**arrays(4))
    kernel.close()
    kernel.close()
    for late in (step, kernel.check, kernel.synchronize, lambda: kernel(**arrays(4)),
                 lambda: kernel.bind(**arrays(4))):
        with pytest.raises(KernelClosed):
            late()


def test_a_call_copies_host_arrays_and_raises_at_once(plan: Plan, driver: FakeDriver) -> None:
    kernel = loaded(plan)
    host = {"a": np.full((3, 128), 2, np.float32), "c": np.zeros(3, np.float32)}

    def double(launched: Launched) -> None:
        _, a, _, c = launched.words
        given = np.ctypeslib.as_array((ctypes.c_float * 384).from_address(a))
        np.ctypeslib.as_array((ctypes.c_float * 3).from_address(c))[:] = 2 * given[:3]

    driver.run = double
    kernel(**host)
    np.testing.assert_array_equal(host["c"], 4)
    driver.run = lambda launched: fail(launched, RANK, 0, (1, 1), 0)
    with pytest.raises(StuckWait, match=r"partial\(1, 1\)"):
        kernel(**host)
    driver.run = double
    kernel(**host)


def test_debug_shows_what_was_not_written(plan: Plan, driver: FakeDriver) -> None:
    kernel = loaded(plan, debug=True)
    seen: list[int] = []

    def look(launched: Launched) -> None:
        seen.append(ctypes.c_uint32.from_address(launched.words[2]).value)
        assert launched.shared["waited"] and launched.shared["delay_seed"] == 0

    driver.run = look
    host = {"a": np.ones((3, 128), np.float32), "c": np.zeros(3, np.float32)}
    kernel(**host)
    assert seen == [0xFFFFFFFF] and np.isnan(host["c"]).all()


def test_words_that_carry_flags_start_clear_and_hold_nothing_else(
    plan: Plan, driver: FakeDriver
) -> None:
    """Zeroed when they are made and after a failure; never filled, whatever the dims."""
    image = loaded(plan, debug=True).backend.image
    (b,) = image.buffers
    flags = replace(image, buffers=(), words=(b,), word_bytes=Dim("n") * 32)
    kernel = LoadedKernel(DeviceKernel(flags, cuda_driver.device(0)))
    host = {"a": np.ones((2, 128), np.float32), "c": np.zeros(2, np.float32)}
    seen: list[int] = []

    def write(launched: Launched) -> None:
        assert launched.words[2] == launched.shared["words"] and launched.shared["word_count"] >= 8
        words = (ctypes.c_uint64 * 8).from_address(launched.words[2])
        seen.append(sum(words))
        words[3] = (7 << 32) | np.float32(1.5).view(np.uint32).item()

    driver.run = write
    kernel(**host)
    assert kernel.backend.last_call(["b"])["b"].tolist() == [[0, 0, 0, 1.5], [0] * 4]
    driver.run = lambda launched: fail(launched, RANK, 0, (0, 0), 0)
    with pytest.raises(StuckWait):
        kernel(**host)
    driver.run = write
    kernel(**host)
    assert seen == [0, 0]


# ---- traces --------------------------------------------------------------------------------


def test_a_trace_is_read_back_and_says_what_it_lacks(
    plan: Plan, driver: FakeDriver, tmp_path: Path
) -> None:
    """Worker 1 ran five tasks, of which the buffer holds three."""
    kernel = loaded(plan, trace=True)

    def work(launched: Launched) -> None:
        shared = launched.shared
        assert shared["trace_capacity"] == 3
        progress = np.zeros(WORKERS, PROGRESS.dtype(RANK))
        progress["traced"][1] = 5
        records = np.zeros(6, abi.TRACE.dtype(RANK))
        for k in range(3):
            records[3 + k] = (1, 0, 100 + k * 10, 102 + k * 10, 109 + k * 10, 3 * k, (k, 0))
        control = np.zeros(1, CONTROL.dtype(RANK))
        control["step"] = shared["step"]
        for x, name in ((progress, "progress"), (records, "trace"), (control, "control")):
            ctypes.memmove(int(shared[name]), x.ctypes.data, x.nbytes)

    step = kernel.bind(**arrays(96))
    with pytest.raises(NoTrace, match="not launched"):
        kernel.backend.traced()
    driver.run = work
    step()
    path = tmp_path / "trace.json"
    with pytest.warns(UserWarning, match="lacks 2 tasks"):
        kernel.write_trace(path)
    line = json.loads(path.read_text())
    tasks = [e for e in line["traceEvents"] if e["ph"] == "X" and e["cat"] == "partial"]
    assert [e["name"] for e in tasks] == ["partial(0, 0)", "partial(1, 0)", "partial(2, 0)"]
    assert tasks[0]["ts"] == 0.002 and line["otherData"]["lost"] == 2
    assert [e["args"].get("stalled us") for e in tasks] == [None, 0.003, 0.006]
    assert line["otherData"]["dims"] == {"n": 96}


def test_no_trace_unless_asked(plan: Plan, driver: FakeDriver, tmp_path: Path) -> None:
    kernel = loaded(plan)
    with pytest.raises(NoTrace):
        kernel.write_trace(tmp_path / "trace.json")
