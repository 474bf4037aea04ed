"""Traces: a track per worker, a slice per task, a flow per event edge, nothing when not asked."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from eventtensor.config import Options
from eventtensor.errors import NoTrace
from eventtensor.runtime.chrome_trace import chrome_trace, write_trace
from eventtensor.runtime.cpu_kernel import CpuKernel
from tests.backend.test_cuda_emulated import arrays_of
from tests.support.emulated import emulated_kernel
from tests.support.streams import packed, plan_of


@pytest.mark.parametrize("schedule", ("static", "push"))
def test_a_trace_shows_tasks_waits_and_edges(lab, schedule: str, tmp_path: Path) -> None:
    plan = lab.plan(lab.programs["row_sum"](), schedule)
    kernel = CpuKernel(plan, Options(workers=3, trace=True))
    for n in (200, 70):  # only the last launch counts
        kernel.launch({"n": n}, lab.arrays(plan, {"n": n}))
    path = tmp_path / "trace.json"
    write_trace(plan, kernel.trace, path)
    events = json.loads(path.read_text())["traceEvents"]
    tasks = [e for e in events if e["ph"] == "X" and e["cat"] in ("partial", "final")]
    partials = [f"partial({i}, {j})" for i in range(3) for j in range(4)]
    assert sorted(e["name"] for e in tasks) == sorted(
        partials + [f"final({i})" for i in range(3)]
    )
    assert {e["args"]["i"] for e in tasks} == {0, 1, 2}
    tracks = {e["tid"] for e in events if e["ph"] == "M"}
    assert {e["tid"] for e in tasks} <= tracks <= {0, 1, 2}
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == len(ends) == 12 and set(starts) == set(ends)
    for k, s in starts.items():
        assert s["ts"] <= ends[k]["ts"] and s["name"] == ends[k]["name"]
    for e in tasks:
        assert e["dur"] >= 0
    kernel.close()


def test_slices_of_one_worker_do_not_overlap(lab) -> None:
    plan = lab.plan(lab.programs["carried"](), "ticket")
    kernel = CpuKernel(plan, Options(workers=2, trace=True))
    dims = {"n": 64, "layers": 4}
    kernel.launch(dims, lab.arrays(plan, dims))
    records = kernel.trace.records
    assert len(records) == 8 * 2 * 4
    for worker in (0, 1):
        mine = sorted((r for r in records if r["worker"] == worker), key=lambda r: r["t_claim"])
        for a, b in pairwise(mine):
            assert a["t_claim"] <= a["t_ready"] <= a["t_end"] <= b["t_claim"]
    kernel.close()


def test_flows_follow_run_time_data(lab) -> None:
    plan = lab.plan(lab.programs["ragged"](), "push")
    kernel = CpuKernel(plan, Options(workers=2, trace=True))
    arrays = lab.arrays(plan, {"m": 4})
    arrays["tiles"][:] = (1, 0, 4, 2, 0)
    kernel.launch({"m": 4}, arrays)
    events = chrome_trace(plan, kernel.trace)["traceEvents"]
    assert sum(e["ph"] == "s" for e in events) == 7
    kernel.close()


def test_a_task_tells_how_long_it_stood_still_for_want_of_the_stream() -> None:
    """In every other launch of the emulator copies land late, in some so late that a task waits."""
    plan, found = plan_of(packed()), []
    for seed in range(8):
        with emulated_kernel(plan, 2, seed, trace=True) as kernel:
            for n in (1, 8, 1, 8):
                kernel.launch({"n": n}, arrays_of(plan, {"n": n}, n))
                found.append(kernel.trace.records)
    records = np.concatenate(found)
    assert (records["stalled"] >= 0).all()
    assert (records["stalled"] <= records["t_end"] - records["t_claim"]).all()
    assert records["stalled"].max() > 0


def test_no_trace_unless_asked(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(plan, Options(workers=1))
    kernel.launch({"n": 5}, lab.arrays(plan, {"n": 5}))
    assert "#define ET_TRACE 0" in kernel.source
    with pytest.raises(NoTrace):
        _ = kernel.trace
    kernel.close()
