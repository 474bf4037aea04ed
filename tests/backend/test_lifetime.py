"""Worker threads end with their kernel, and a forked child makes its own."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref

import pytest

from eventtensor.config import Options, environment
from eventtensor.runtime.cpu_kernel import CpuKernel


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_threads_end_when_the_kernel_is_closed_or_dropped(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    before = threads()
    kernel = CpuKernel(plan, Options(workers=5))
    for _ in range(3):
        kernel.launch({"n": 40}, lab.arrays(plan, {"n": 40}))
    assert threads() == before + 5
    kernel.close()
    assert threads() == before
    kernel = CpuKernel(plan, Options(workers=4))
    assert threads() == before + 4 and kernel.from_cache
    del kernel
    gc.collect()
    assert threads() == before


def test_a_forked_child_can_launch(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(plan, Options(workers=2))
    arrays = lab.arrays(plan, {"n": 40})
    expected = lab.reference(plan, {"n": 40}, arrays)
    kernel.launch({"n": 40}, arrays)
    child = os.fork()
    if child == 0:
        arrays["c"][:] = 0
        kernel.launch({"n": 40}, arrays)
        os._exit(0 if (arrays["c"] == expected["c"]).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    kernel.launch({"n": 40}, arrays)
    kernel.close()


@pytest.mark.parametrize("how", ["closed", "dropped", "ended"])
def test_a_forked_child_ends_without_a_launch(lab, how: str) -> None:
    """It has no worker threads to join."""
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(plan, Options(workers=2))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            if how == "closed":
                kernel.close()
            elif how == "dropped":
                del kernel
                gc.collect()
            else:
                weakref.finalize._exitfunc()  # what Python does as it ends
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    kernel.launch({"n": 40}, lab.arrays(plan, {"n": 40}))
    kernel.close()


DAEMON = """
import threading, time
import numpy as np
import eventtensor as et

@et.task
def double(x, out):
    out[:] = x * 2.0

n = et.dim("n")
p = et.Program("long")
a, b = p.input("a", (n,), et.f32), p.output("b", (n,), et.f32)
p.call(double, grid=(n.tiles(8),), reads=lambda i: a[i*8:i*8+8], writes=lambda i: b[i*8:i*8+8])
kernel, x = et.compile(p, workers=2), np.ones(1 << 22, np.float32)
begun = threading.Event()

def launch():
    y = np.empty_like(x)
    while True:
        kernel(a=x, b=y)
        begun.set()

threading.Thread(target=launch, daemon=True).start()
begun.wait()
time.sleep(0.02)
"""


def test_a_process_may_end_beside_a_launch(tmp_path) -> None:
    """A daemon thread is in the middle of one: its workers stay as long as it does."""
    (tmp_path / "daemon.py").write_text(DAEMON)
    for _ in range(6):
        done = subprocess.run([sys.executable, "daemon.py"], cwd=tmp_path, capture_output=True,
                              timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode()


def test_workers_default_to_the_cores(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(plan, Options())
    assert kernel.workers == environment().default_workers and kernel.compilations == 1
    kernel.close()


def test_scratch_of_earlier_dims_survives_a_workspace_that_grows(lab) -> None:
    """Places of scratch are kept for each set of dims; a larger workspace replaces them all."""
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(plan, Options(workers=2))
    for n in (3, 40, 4000, 3, 40, 4000, 3):
        arrays = lab.arrays(plan, {"n": n})
        kernel.launch({"n": n}, arrays)
        lab.assert_same(arrays, lab.reference(plan, {"n": n}, arrays))
    kernel.close()
