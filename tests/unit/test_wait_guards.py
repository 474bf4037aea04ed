"""Each wait of a plan lists the hazards that it orders, and the arguments that they concern."""

from __future__ import annotations

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Guard, Hazard, Plan
from eventtensor.ir.text import plan_text
from eventtensor.ir.tile import ArgMode


@et.task
def make(x, a, b):
    a[:] = x
    b[:] = x


@et.task
def mix(b, a, before, a_out, y):
    a_out[:] = a + before
    y[:] = a + b


def mixed(declared: bool) -> Plan:
    """`mix` reads both tensors that `make` writes and overwrites the first. One of its arguments
    comes from outside."""
    p = et.Program("mixed")
    x, y = p.input("x", (8, 16), et.f32), p.output("y", (8, 16), et.f32)
    a, b = p.scratch("a", (8, 16), et.f32), p.scratch("b", (8, 16), et.f32)
    made = p.events("made", (8,)) if declared else None
    notifies = {"notifies": lambda i: made[i]} if made is not None else {}
    waits = {"waits": lambda i: made[i]} if made is not None else {}
    p.call(make, grid=(8,), reads=lambda i: x[i, :], writes=lambda i: (a[i, :], b[i, :]),
           **notifies)
    p.call(mix, grid=(8,), reads=lambda i: (b[i, :], a[i, :], x[i, :]),
           writes=lambda i: (a[i, :], y[i, :]), **waits)
    state = run_passes(p, Options())
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


ALL = {Guard("a", Hazard.raw), Guard("b", Hazard.raw), Guard("a", Hazard.waw)}


def test_a_derived_wait_lists_what_it_orders() -> None:
    plan = mixed(declared=False)
    (wait,) = plan.call("mix").waits
    assert set(wait.guards) == ALL and not wait.is_declared
    assert wait.reason == ", ".join(map(str, wait.guards)) and "b (raw)" in wait.reason
    assert f"wait make_done: [i]; for {wait.reason}" in plan_text(plan)


def test_a_declared_wait_lists_the_tensors_that_both_calls_name() -> None:
    plan = mixed(declared=True)
    (wait,) = plan.call("mix").waits
    assert set(wait.guards) == ALL
    assert wait.is_declared and wait.reason == "declared"


def test_guards_name_the_arguments_that_they_concern() -> None:
    plan = mixed(declared=False)
    (wait,) = plan.call("mix").waits
    read, write = ArgMode.read, ArgMode.write
    assert wait.guarded_args(plan.program.call("mix")) == ((0, read), (1, read), (3, write))


def test_a_write_after_a_read_concerns_the_write_alone() -> None:
    p = et.Program("war")
    a, out = p.state("a", (8, 16), et.f32), p.output("out", (8, 16), et.f32)
    x = p.input("x", (8, 16), et.f32)

    @et.task
    def keep(x, y):
        y[:] = x

    p.call(keep, name="first", grid=(8,), reads=lambda i: a[i, :], writes=lambda i: out[i, :])
    p.call(keep, name="second", grid=(8,), reads=lambda i: x[i, :], writes=lambda i: a[i, :])
    plan = run_passes(p, Options()).plan
    assert plan is not None
    (wait,) = plan.call("second").waits
    assert wait.guards == (Guard("a", Hazard.war),)
    assert wait.guarded_args(plan.program.call("second")) == ((1, ArgMode.write),)
