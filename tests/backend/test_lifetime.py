"""Worker threads end with their kernel, and a forked child makes its own."""

from __future__ import annotations

import gc
import os

from eventtensor.config import Options, environment
from eventtensor.runtime.cpu import CpuKernel


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
