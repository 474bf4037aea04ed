"""The driver: passes, options, reports, explain, and the page of errors."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import BadOption, NoTrace, ProofError, UncoveredRead, catalogue
from eventtensor.ir.plan import ScheduleKind
from examples.moe import moe
from examples.row_sum import row_sum
from tools import errors_doc, performance_doc

ROOT = Path(__file__).parents[2]


@et.task
def copy(x, o):
    o[:] = x


def unguarded() -> et.Program:
    n = et.dim("n", max=64)
    p = et.Program("unguarded")
    x, s, o = p.input("x", (n,), et.f32), p.scratch("s", (n,), et.f32), p.output("o", (n,), et.f32)
    p.call(copy, grid=(n,), reads=lambda i: x[i], writes=lambda i: s[i])
    p.call(copy, grid=(n,), reads=lambda i: s[i], writes=lambda i: o[i], waits=())
    return p


def test_a_program_that_is_not_proved_is_not_compiled():
    with pytest.raises(UncoveredRead) as caught:
        et.compile(unguarded())
    assert isinstance(caught.value, ProofError)
    text = str(caught.value)
    assert text.startswith("ET201: copy_2(i=0) reads s[0], written by copy(i=0)")
    assert "test_compiler.py:" in text and "hint:" in text


def test_check_returns_values_and_never_raises_for_a_bad_program():
    report = et.check(unguarded())
    assert (report.ok, report.status) == (False, "refuted")
    (problem,) = report.problems
    assert problem.code == "ET201" and dict(problem.witness.dims) == {"n": 1}


def test_options_are_a_frozen_record():
    with pytest.raises(FrozenInstanceError):
        Options().target = "cuda"  # type: ignore[misc]


@pytest.mark.parametrize("options", [
    {"target": "tpu"}, {"schedule": "fastest"}, {"schedule": {"no_such_call": "push"}},
    {"workers": -1},
])
def test_bad_options_are_refused_before_anything_is_built(options):
    with pytest.raises(BadOption):
        et.compile(row_sum(), **options)


def test_auto_gives_each_grid_its_schedule_and_the_reason():
    plan = run_passes(moe(), Options()).plan
    chosen = {c.call: c.schedule for c in plan.calls}
    assert chosen["route"].kind is ScheduleKind.static
    assert chosen["gate_up"].kind is chosen["down"].kind is ScheduleKind.push
    assert chosen["gate_up"].group == chosen["down"].group >= 0
    assert chosen["down"].pending == ("gate_up_done",)
    assert all(s.reason for s in chosen.values())


def test_a_lone_run_time_grid_and_uneven_tiles_are_claimed_by_ticket():
    @et.task
    def uneven(x, o, *, i):
        acc = et.zeros(())
        for k in et.range(i + 1):
            acc[()] = acc + x[k]
        o[:] = acc

    p = et.Program("p")
    x, o = p.input("x", (8,), et.f32), p.output("o", (8,), et.f32)
    t, q = p.input("t", (8,), et.i32, bound=4), p.output("q", (8, 4), et.f32)
    p.call(uneven, grid=(8,), reads=lambda i: x[:], writes=lambda i: o[i])
    p.call(copy, grid=(8, lambda i: t[i]), reads=lambda i, j: x[i], writes=lambda i, j: q[i, j])
    kinds = [c.schedule.kind for c in run_passes(p, Options()).plan.calls]
    assert kinds == [ScheduleKind.ticket, ScheduleKind.ticket]


def test_schedules_can_be_named_for_single_calls():
    options = Options(schedule=(("final_sum", "ticket"),))
    plan = run_passes(row_sum(), options).plan
    assert plan.call("partial_sum").schedule.kind is ScheduleKind.static
    assert plan.call("final_sum").schedule.kind is ScheduleKind.ticket


def test_balanced_static_grids_start_where_the_last_one_ended():
    plan = run_passes(row_sum(), Options()).plan
    assert str(plan.call("final_sum").schedule.shift) == "((n + 31)//32)*4"


def test_explain_shows_grids_events_schedules_memory_and_source():
    text = et.explain(row_sum())
    for part in ("partial_sum(i < (n + 31)//32, j < 4)", "static (balanced)", "count 4",
                 "notifies [i]", "waits for [i]", "workspace:", "65536 at n = 4096"):
        assert part in text
    assert "final_sum(i < (n + 31)//32)  push, queue 0: asked for" in et.explain(row_sum(), "push")
    kernel = et.compile(row_sum())
    assert "et::ev_wait" in et.explain(kernel)
    kernel.close()


def test_the_interpreter_is_a_target_like_the_others():
    kernel = et.compile(row_sum(), target="interp", debug=True)
    a, c = np.arange(33 * 128, dtype=np.float32).reshape(33, 128) % 7, np.zeros(33, np.float32)
    kernel(a=a, c=c)
    np.testing.assert_array_equal(c, a.sum(axis=1))
    assert kernel.source == "" and kernel.compilations == 1
    with pytest.raises(NoTrace):
        kernel.write_trace("nowhere.json")


def test_generated_pages_are_up_to_date():
    assert (ROOT / "docs" / "errors.md").read_text() == errors_doc.page()
    assert (ROOT / "docs" / "performance.md").read_text() == performance_doc.page()


def test_error_codes_are_unique_and_every_error_has_a_test():
    codes = [c.code for c in catalogue()]
    assert len(set(codes)) == len(codes)
    tests = "\n".join(f.read_text() for f in (ROOT / "tests").rglob("*.py"))
    kinds = (ROOT / "src/eventtensor/analysis/check_report.py").read_text()
    named = dict(re.findall(r"Kind\.(\w+): errors\.(\w+)", kinds))
    by_class = {v: k for k, v in named.items()}
    for c in catalogue():
        kind = by_class.get(c.__name__)
        used = f"Kind.{kind}" if kind else c.__name__
        assert re.search(rf"\b{re.escape(used)}\b", tests) or c.code in tests, c.__name__
