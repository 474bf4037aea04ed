"""Stuck waits and broken obligations end a launch with one clear error, and the next one works."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options, environment
from eventtensor.errors import (
    BadOption,
    BoundViolated,
    CountMismatch,
    FactViolated,
    KernelClosed,
    OutOfRange,
    StuckWait,
    UnboundedGrid,
)
from eventtensor.ir.expr import Const, Select, Var, compare, load, select
from eventtensor.ir.plan import Plan
from eventtensor.ir.program import Fact, GridAxis
from eventtensor.runtime.cpu_kernel import CpuKernel
from tests.support.bases import chunks

QUICK = replace(environment(), wait_limit_s=0.3)


def with_count(plan: Plan, count) -> Plan:
    """The plan with another count for its one event."""
    return replace(plan, events=(replace(plan.events[0], count=count), *plan.events[1:]))


@pytest.mark.parametrize("schedule", ("static", "ticket"))
def test_a_stuck_wait_names_all_and_the_next_launch_works(lab, schedule: str) -> None:
    """From row 2 on the count is one too high; smaller launches never see it."""
    plan = lab.plan(lab.programs["row_sum"](), schedule)
    high = select(compare("<=", 2, Var("c0")), 5, 4)
    assert isinstance(high, Select)
    broken = with_count(plan, high)
    kernel = CpuKernel(broken, Options(workers=3), QUICK)
    for _ in range(2):
        arrays = lab.arrays(plan, {"n": 65})
        with pytest.raises(StuckWait) as caught:
            kernel.launch({"n": 65}, arrays)
        message = str(caught.value)
        assert "worker" in message and "final(2)" in message
        assert "[2]" in message and "expected 5, seen 4" in message and "n = 65" in message
        good = lab.arrays(plan, {"n": 64})
        kernel.launch({"n": 64}, good)
        lab.assert_same(good, lab.reference(plan, {"n": 64}, good))
    kernel.close()


def test_a_queue_that_never_fills_is_a_stuck_wait(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"](), "push")
    kernel = CpuKernel(with_count(plan, Const(5)), Options(workers=2), QUICK)
    with pytest.raises(StuckWait, match="queue"):
        kernel.launch({"n": 33}, lab.arrays(plan, {"n": 33}))
    kernel.close()


def test_a_wait_inside_a_body_gets_stuck_like_any_other(lab) -> None:
    """Both workers wait for a chunk in the middle of their tasks: neither will complete."""
    plan = lab.plan(chunks())
    assert plan.events[0].name == "part_done"
    kernel = CpuKernel(with_count(plan, Const(2)), Options(workers=2), QUICK)
    with pytest.raises(StuckWait, match=r"walk\(\d\) waits for part_done\[0\], expected 2, seen 1"):
        kernel.launch({"n": 8}, lab.arrays(plan, {"n": 8}))
    kernel.close()


@et.task
def slow(x, out):
    acc = x * 1.0
    for _ in et.range(3000000):
        acc[:] = acc * 0.5 + x
    out[:] = acc


def test_a_wait_lasts_while_a_task_runs(lab) -> None:
    """The limit counts from the last progress anywhere: a long body is progress."""
    p = et.Program("patient")
    x, y = p.input("x", (64,), et.f32), p.scratch("y", (64,), et.f32)
    z = p.output("z", (64,), et.f32)
    p.call(slow, name="long", grid=(), reads=lambda: x[:], writes=lambda: y[:])
    p.call(slow, name="after", grid=(), reads=lambda: y[:], writes=lambda: z[:])
    plan = lab.plan(p)
    kernel = CpuKernel(plan, Options(workers=2), replace(QUICK, wait_limit_s=0.02))
    arrays = {"x": np.ones(64, np.float32), "z": np.zeros(64, np.float32)}
    kernel.launch({}, arrays)
    assert np.allclose(arrays["z"], 4)
    kernel.close()


def test_debug_finds_over_and_under_notification(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    kernel = CpuKernel(with_count(plan, Const(3)), Options(workers=2, debug=True))
    with pytest.raises(CountMismatch, match=r"final\(0\).*ended at 4, but its count is 3"):
        kernel.launch({"n": 3}, lab.arrays(plan, {"n": 3}))
    kernel.close()


def gather_program(facts: dict) -> et.Program:
    p = et.Program("pick")
    at = p.input("at", (6,), et.i32, **facts)
    x, z = p.input("x", (8,), et.f32), p.output("z", (6,), et.f32)

    @et.task
    def pick(one, out):
        out[:] = one * 2.0

    p.call(pick, grid=(6,), reads=lambda i: x[at[i]], writes=lambda i: z[i])
    return p


def pick_arrays(at: list[int]) -> dict[str, np.ndarray]:
    return {"at": np.array(at, np.int32), "x": np.arange(8, dtype=np.float32),
            "z": np.zeros(6, np.float32)}


@pytest.mark.parametrize(
    "facts, at, error",
    [
        ({"bound": (0, 7)}, [0, 1, 2, 3, 4, 8], BoundViolated),
        ({"bound": (0, 7)}, [0, -1, 2, 3, 4, 5], BoundViolated),
        ({"bound": (0, 7), "monotone": True}, [0, 1, 4, 3, 4, 5], FactViolated),
        ({"bound": (0, 7), "distinct": (0,)}, [0, 1, 2, 3, 1, 5], FactViolated),
    ],
)
def test_debug_checks_facts_of_inputs_before_the_launch(lab, facts, at, error) -> None:
    kernel = CpuKernel(lab.plan(gather_program(facts)), Options(workers=1, debug=True))
    arrays = pick_arrays(at)
    with pytest.raises(error):
        kernel.launch({}, arrays)
    assert not arrays["z"].any()
    kernel.launch({}, pick_arrays([0, 1, 2, 3, 4, 7]))
    kernel.close()


def test_debug_checks_stated_facts(lab) -> None:
    program = gather_program({"bound": (0, 7)})
    program_fact = program.build()
    over = (GridAxis("i", Const(5)),)

    cond = compare("<=", load("at", (Var("i"),)), load("at", (Var("i") + 1,)))
    plan = lab.plan(program)
    fact = Fact(over, cond)
    plan = replace(plan, program=replace(program_fact, facts=(fact,)))
    kernel = CpuKernel(plan, Options(workers=1, debug=True))
    with pytest.raises(FactViolated, match="i = 2"):
        kernel.launch({}, pick_arrays([0, 1, 4, 3, 4, 5]))
    kernel.launch({}, pick_arrays([0, 1, 2, 3, 4, 5]))
    kernel.close()


def computed_index(bound: tuple[int, int]) -> et.Program:
    """Indices that a task computes: only the device can check them."""
    p = et.Program("computed")
    raw, at = p.input("raw", (6,), et.i32), p.scratch("at", (6,), et.i32, bound=bound)
    x, z = p.input("x", (8,), et.f32), p.output("z", (6,), et.f32)

    @et.task
    def index(r, out):
        out[:] = r + 1

    @et.task
    def pick(one, out):
        out[:] = one * 2.0

    p.call(index, grid=(), reads=lambda: raw[:], writes=lambda: at[:])
    p.call(pick, grid=(6,), reads=lambda i: x[at[i]], writes=lambda i: z[i])
    return p


def test_debug_checks_bounds_of_computed_indices(lab) -> None:
    kernel = CpuKernel(lab.plan(computed_index((0, 7))), Options(workers=2, debug=True))

    def arrays(top: int) -> dict[str, np.ndarray]:
        return {"raw": np.array([0, 1, 2, 3, 4, top], np.int32),
                "x": np.arange(8, dtype=np.float32), "z": np.zeros(6, np.float32)}

    with pytest.raises(BoundViolated, match=r"at\[5\] = 8"):
        kernel.launch({}, arrays(7))
    kernel.launch({}, arrays(6))
    kernel.close()


def test_debug_checks_regions_against_their_tensor(lab) -> None:
    """The bound is a wrong axiom here: the region check is the last line."""
    plan = lab.plan(computed_index((0, 7)))
    loose = tuple(
        replace(t, bound=(Const(0), Const(99))) if t.name == "at" else t
        for t in plan.program.tensors
    )
    plan = replace(plan, program=replace(plan.program, tensors=loose))
    kernel = CpuKernel(plan, Options(workers=2, debug=True))
    arrays = {"raw": np.array([0, 1, 2, 3, 4, 20], np.int32),
              "x": np.arange(8, dtype=np.float32), "z": np.zeros(6, np.float32)}
    with pytest.raises(OutOfRange, match="index 21 on axis 0 of 'x'"):
        kernel.launch({}, arrays)
    kernel.close()


def test_a_closed_kernel_says_so(lab) -> None:
    kernel = CpuKernel(lab.plan(gather_program({"bound": (0, 7)})), Options(workers=1))
    kernel.close()
    kernel.close()
    with pytest.raises(KernelClosed):
        kernel.launch({}, pick_arrays([0] * 6))


def test_negative_workers_are_refused(lab) -> None:
    with pytest.raises(BadOption):
        CpuKernel(lab.plan(gather_program({"bound": (0, 7)})), Options(workers=-1))


def test_a_queue_needs_a_bound(lab) -> None:
    plan = lab.plan(lab.programs["ragged"](), "push")
    free = tuple(replace(t, bound=None) for t in plan.program.tensors)
    plan = replace(plan, program=replace(plan.program, tensors=free))
    with pytest.raises(UnboundedGrid, match="tiles"):
        CpuKernel(plan, Options(workers=1))
