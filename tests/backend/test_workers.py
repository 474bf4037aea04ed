"""Workers: how many may be asked for, and what happens where the machine has no room for them or
for what they compute."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options, environment
from eventtensor.errors import BadOption, NoThreads, OutOfMemory
from eventtensor.ir.expr import Dim
from eventtensor.runtime.cpu_kernel import CpuKernel

CPU = {"target": "cpu", "workers": 2}


@et.task
def doubled(x, out):
    out[:] = x * 2.0


@et.task
def through_a_tile(x, out, *, k):
    t = et.zeros((k,))
    for i in et.range(4):
        t[i] = x[i]
    out[:] = x + t.sum(axis=0)


@et.task
def added(x, y, out):
    out[:] = x + y


def double(name: str = "double") -> et.Program:
    n = et.dim("n", max=64)
    p = et.Program(name)
    x, y = p.input("x", (n,), et.f32), p.output("y", (n,), et.f32)
    p.call(doubled, grid=(n.tiles(8),), reads=lambda i: x[i * 8 : i * 8 + 8],
           writes=lambda i: y[i * 8 : i * 8 + 8])
    return p


def wide() -> et.Program:
    """A task with a temporary of k numbers, and others that wait for it."""
    k = et.dim("k", min=8, max=2**60)
    p = et.Program("wide")
    x, y = p.input("x", (8,), et.f32), p.scratch("y", (8,), et.f32)
    z = p.output("z", (8, 8), et.f32)
    p.call(through_a_tile, grid=(k.tiles(2**60),), reads=lambda i: x[:], writes=lambda i: y[:])
    p.call(added, grid=(8,), reads=lambda i: (x[:], y[:]), writes=lambda i: z[i, :])
    return p


@pytest.mark.parametrize("asked", ["-3", "-1", "1025", "100000", "2147483648", "x", "1.5", "2e3"])
def test_a_number_of_workers_from_the_environment_is_checked(asked: str) -> None:
    with pytest.raises(BadOption, match=f"ET_WORKERS is '?{asked}"):
        environment({"ET_WORKERS": asked})


@pytest.mark.parametrize("asked", [-1, 1025, 2**31, "3", 1.5, True, None])
def test_a_number_of_workers_as_an_option_is_checked(asked: object) -> None:
    with pytest.raises(BadOption, match="workers is"):
        et.compile(double(), target="cpu", workers=asked)


def test_an_artifact_takes_the_same_numbers_of_workers(tmp_path) -> None:
    kernel = et.compile(double(), **CPU)
    kernel.save(tmp_path)
    kernel.close()
    with pytest.raises(BadOption, match="workers is -1"):
        et.load(tmp_path, workers=-1)


@pytest.mark.parametrize("asked", ["nan", "-1", "0", "inf", "soon", ""])
def test_the_limit_of_a_wait_is_checked(asked: str) -> None:
    with pytest.raises(BadOption, match="ET_WAIT_LIMIT_S"):
        environment({"ET_WAIT_LIMIT_S": asked})


def in_child(work: Callable[[], None], patience_s: float = 60.0) -> int:
    """Runs `work` in a forked child: 0 if it returned, 1 if it raised, -1 if it never ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def test_threads_that_cannot_be_started_are_an_error(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    CpuKernel(plan, Options(workers=1)).close()  # it is in the cache now

    def many() -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20), resource.RLIM_INFINITY))
        with pytest.raises(NoThreads, match="1000 worker threads"):
            CpuKernel(plan, Options(workers=1000))
        CpuKernel(plan, Options(workers=2)).close()

    assert in_child(many) == 0


@pytest.mark.parametrize("target, shown", [
    ("cpu", r"through_a_tile\(0\) asks for .* bytes.*k = "), ("interp", "a temporary.*k = "),
])
def test_a_temporary_that_memory_cannot_hold_ends_the_launch(target: str, shown: str) -> None:
    kernel = et.compile(wide(), target=target)
    x, z = np.arange(8, dtype=np.float32), np.zeros((8, 8), np.float32)
    for k in (2**45, 2**60):
        with pytest.raises(OutOfMemory, match=shown):
            kernel(x=x, z=z, k=k)
    kernel(x=x, z=z, k=100)
    assert (z == 2 * x + 6).all()
    kernel.close()


def test_cells_that_memory_cannot_hold_end_the_launch_and_no_more(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(plan, Options(workers=2))
    big = replace(plan.events[0], shape=(Dim("n", 1, None) * 2**36,))
    broken = CpuKernel(replace(plan, events=(big,)), Options(workers=2))
    arrays = lab.arrays(plan, {"n": 64})
    with pytest.raises(OutOfMemory, match=r"the cells of a launch take \d+ bytes"):
        broken.launch({"n": 64}, arrays)
    kernel.launch({"n": 64}, arrays)
    lab.assert_same(arrays, lab.reference(plan, {"n": 64}, arrays))
    broken.close()
    kernel.close()


def test_a_child_that_is_forked_beside_a_launch_can_launch(lab) -> None:
    """Whatever the thread of the parent was doing: it is not in the child."""
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(plan, Options(workers=2))
    arrays = lab.arrays(plan, {"n": 40})
    stop = threading.Event()

    def launch() -> None:
        own = lab.arrays(plan, {"n": 40})
        while not stop.is_set():
            kernel.launch({"n": 40}, own)

    beside = threading.Thread(target=launch)
    beside.start()
    try:
        ended = [in_child(lambda: kernel.launch({"n": 40}, arrays), 20.0) for _ in range(8)]
    finally:
        stop.set()
        beside.join()
    assert ended == [0] * 8
    kernel.close()


def test_a_gpu_itself_says_how_many_blocks_it_runs() -> None:
    assert Options(target="cuda", workers=1056).workers == 1056
    for wrong in (-1, 2**31, True, "3"):
        with pytest.raises(BadOption, match="workers"):
            Options(target="cuda", workers=wrong)
