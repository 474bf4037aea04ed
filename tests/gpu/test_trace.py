"""Traces of the device: a record for every task of the last launch, by one clock."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.errors import NoTrace
from eventtensor.runtime.chrome_trace import write_trace
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from tests.backend import conftest as lab
from tests.support.streams import packed, panels_shape, plan_of

SCHEDULES = ("static", "ticket", "push")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_trace_shows_tasks_and_edges_of_the_last_launch(schedule: str, tmp_path: Path) -> None:
    kernel = et.compile(lab.row_sum(), target="cuda", schedule=schedule, trace=True)
    for n in (200, 70):
        kernel(**lab.make_arrays(kernel.plan, {"n": n}))
    path = tmp_path / "trace.json"
    kernel.write_trace(path)
    line = json.loads(path.read_text())
    tasks = [e for e in line["traceEvents"] if e["ph"] == "X" and e["cat"] in ("partial", "final")]
    partials = [f"partial({i}, {j})" for i in range(3) for j in range(4)]
    assert sorted(e["name"] for e in tasks) == sorted(
        partials + [f"final({i})" for i in range(3)]
    )
    assert sum(e["ph"] == "s" for e in line["traceEvents"]) == 12
    assert all(e["dur"] >= 0 for e in tasks) and line["otherData"]["lost"] == 0
    kernel.close()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tasks_of_one_worker_follow_each_other_and_come_after_what_they_wait_for(
    schedule: str,
) -> None:
    plan = lab.make_plan(lab.carried(), schedule)
    kernel = CudaKernel(plan, Options(target="cuda", trace=True))
    dims = {"n": 640, "layers": 4}
    kernel.launch(dims, lab.make_arrays(plan, dims))
    records = kernel.trace.records
    assert len(records) == 80 * 2 * 4
    for worker in np.unique(records["worker"]):
        mine = sorted((r for r in records if r["worker"] == worker), key=lambda r: r["t_claim"])
        for a, b in pairwise(mine):
            assert a["t_claim"] <= a["t_ready"] <= a["t_end"] <= b["t_claim"]
    up = {tuple(r["coords"]): r for r in records if r["call"] == 0}
    for r in records[records["call"] == 1]:
        assert up[tuple(r["coords"])]["t_ready"] <= r["t_end"]
    kernel.close()


def test_a_task_tells_how_long_it_stood_still_for_want_of_the_stream() -> None:
    """All workers together take longer to bring weights than to multiply them."""
    panels, tasks, k = 8, 264, 4096
    plan = plan_of(packed(panels, k, 8, panels * tasks))
    options = Options(target="cuda", trace=True)
    given = {"x": np.zeros((1, k), et.bf16.numpy), "y": np.zeros((1, panels * tasks * 16), "f4"),
             "w": np.zeros(panels_shape(panels * tasks, k), et.bf16.numpy)}
    kernel = CudaKernel(plan, options)
    kernel.launch({"n": 1}, given)
    records = kernel.trace.records
    assert len(records) == tasks
    assert (records["stalled"] <= records["t_end"] - records["t_claim"]).all()
    assert records["stalled"].max() > 0
    kernel.close()


def test_a_full_buffer_is_told(tmp_path: Path) -> None:
    plan = lab.make_plan(lab.row_sum())
    kernel = CudaKernel(plan, Options(target="cuda", trace=True, workers=2), trace_capacity=4)
    kernel.launch({"n": 320}, lab.make_arrays(plan, {"n": 320}))
    assert kernel.trace.lost == 50 - 8 and len(kernel.trace.records) == 8
    with pytest.warns(UserWarning, match="lacks 42 tasks"):
        write_trace(plan, kernel.trace, tmp_path / "trace.json")
    kernel.close()


def test_no_trace_unless_asked() -> None:
    plan = lab.make_plan(lab.row_sum())
    kernel = CudaKernel(plan, Options(target="cuda"))
    kernel.launch({"n": 5}, lab.make_arrays(plan, {"n": 5}))
    assert "#define ET_TRACE 0" in kernel.source
    with pytest.raises(NoTrace):
        _ = kernel.trace
    kernel.close()
