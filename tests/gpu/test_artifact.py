"""Artifacts on the device: saved here, loaded and run by a process that has no compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eventtensor.config import Options
from eventtensor.ir.expr import Const
from eventtensor.runtime.cuda.cuda_artifact import save
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from tests.backend import conftest as lab
from tests.backend.test_failures import QUICK, with_count

HEAD = """
import sys, time
for name in ("islpy", "ml_dtypes", "cuda", "cuda.bindings"):
    sys.modules[name] = None
import numpy as np
began = time.perf_counter()
import eventtensor as et
imported = time.perf_counter()
from eventtensor.runtime.cuda.driver import device
device(0)
there = time.perf_counter()
kernel = et.load(sys.argv[1])
loaded = time.perf_counter()
print(f"import {imported - began:.3f} s, context {there - imported:.3f} s, "
      f"load {loaded - there:.3f} s")
given = dict(np.load(sys.argv[2]))
"""
RUN = HEAD + """
wanted = given.pop("wanted")
for _ in range(3):
    kernel(**given)
    np.testing.assert_array_equal(given["c"], wanted)
    given["c"][:] = 0
kernel.close()
"""
STUCK = HEAD + """
from eventtensor.errors import StuckWait
for _ in range(2):
    try:
        kernel(**given)
    except StuckWait as e:
        print(e)
"""


def in_a_child(script: str, folder: Path, arrays: dict[str, np.ndarray]) -> str:
    np.savez(folder / "arrays.npz", **arrays)
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(folder / "arrays.npz")],
        capture_output=True, text=True, timeout=50, check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return done.stdout


@pytest.mark.parametrize("schedule", ("static", "ticket", "push"))
def test_an_artifact_runs_without_the_compiler(schedule: str, tmp_path: Path) -> None:
    plan = lab.make_plan(lab.row_sum(), schedule)
    kernel = CudaKernel(plan, Options(target="cuda"))
    save(kernel.image, tmp_path)
    kernel.close()
    host = lab.make_arrays(plan, {"n": 500})
    wanted = lab.reference(plan, {"n": 500}, host)["c"]
    in_a_child(RUN, tmp_path, {**host, "wanted": wanted})


def test_a_stuck_wait_of_an_artifact_is_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lab.make_plan(lab.row_sum())
    kernel = CudaKernel(with_count(plan, Const(5)), Options(target="cuda"), QUICK)
    save(kernel.image, tmp_path)
    kernel.close()
    monkeypatch.setenv("ET_WAIT_LIMIT_S", "0.3")
    told = in_a_child(STUCK, tmp_path, lab.make_arrays(plan, {"n": 20}))
    assert told.count("final(0) waits for partial_done[0], expected 5, seen 4") == 2
