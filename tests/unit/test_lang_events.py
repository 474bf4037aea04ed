"""Event tensors and facts: declaration, use in calls, and every error they raise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eventtensor as et
from eventtensor import errors
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.expr import Compare, Const, Load, Var
from eventtensor.ir.program import GridAxis


@et.task
def copy(x, out):
    out[:] = x


def simple() -> tuple[et.Program, object, object]:
    p = et.Program("p")
    n = et.dim("n", max=64)
    return p, p.input("a", (n, 8), et.f32), p.output("b", (n, 8), et.f32)


def test_event_counts_may_be_derived_constant_or_read_at_run_time():
    n = et.dim("n")
    p = et.Program("p")
    counts = p.scratch("counts", (8,), et.i32, bound=64)
    assert p.events("A", (n.tiles(32),)).event.count is None
    assert p.events("B", (n,), count=4).event.count == Const(4)
    assert p.events("C", (8,), count=lambda e: counts[e]).event.count == Load(
        "counts", (Var("c0"),)
    )
    assert p.events("D", (8, n), count=lambda x, y: y + 1).event.count == Var("c1") + 1


def test_waits_and_notifies_name_event_regions():
    p, a, b = simple()
    topk = p.input("topk", (64, 2), et.i32, bound=7)
    event = p.events("E", (8,), count=1)
    wide = p.events("F", (8, 4), count=1)
    p.call(copy, grid=(4,), reads=lambda i: a[i, :], writes=lambda i: b[i, :],
           waits=(), notifies=lambda i: (event[topk[i, :]], wide[i, :], event[i : i + 2]))
    call = p.build().calls[0].call
    assert call.waits == ()
    assert [str(r) for r in call.notifies or ()] == [
        "E[rows(_r0, 2, topk[i, _r0])]", "F[i, 0:4]", "E[i:i + 2]",
    ]


@pytest.mark.parametrize("alike", [True, False])
def test_a_wait_before_a_grid_takes_a_declared_event_that_tells_the_same(alike: bool) -> None:
    p, n = et.Program("told"), et.dim("n", max=8)
    many, used = p.input("many", (n,), et.i32), p.scratch("used", (n,), et.i32, bound=(0, 4))
    y, told = p.output("y", (n, 4), et.i32), p.events("told", (n if alike else 1,))
    with p.loop("i", n) as i:
        p.call(copy, name="plan", grid=(), reads=lambda: many[i], writes=lambda: used[i],
               notifies=lambda: told[i if alike else 0])
        p.call(copy, name="go", grid=(used[i],), reads=lambda j: used[i],
               writes=lambda j: y[i, j])
    plan = run_passes(p, Options()).plan
    assert plan is not None
    assert [w.event for w in plan.call("go").header] == ["told" if alike else "plan_done"]
    assert {k.event for k in plan.call("plan").notifies} == \
        ({"told"} if alike else {"told", "plan_done"})


@pytest.mark.parametrize("act", [
    lambda p, a, b, e: p.events("G", 4),
    lambda p, a, b, e: p.events("G", (0,)),
    lambda p, a, b, e: p.events("G", ("x",)),
    lambda p, a, b, e: p.events("G", (Var("i"),)),
    lambda p, a, b, e: p.events("G", (4,), count=-1),
    lambda p, a, b, e: p.events("G", (4,), count="4"),
    lambda p, a, b, e: p.events("G", (4,), count=lambda x, y: x),
    lambda p, a, b, e: p.call(copy, grid=(1,), reads=e, writes=b),
    lambda p, a, b, e: p.call(copy, grid=(1,), reads=a, writes=b, waits=a),
    lambda p, a, b, e: list(e),
    lambda p, a, b, e: a[e[0], :],
])
def test_event_misuse_is_refused(act: Callable[..., object]):
    p, a, b = simple()
    with pytest.raises(errors.BadEvent):
        act(p, a, b, p.events("E", (4,)))


def test_facts_are_comparisons_over_ranges():
    p = et.Program("p")
    ptr = p.input("ptr", (9,), et.i32, bound=64)
    p.fact(lambda e: [ptr[e] <= ptr[e + 1], et.equal(ptr[0], 0)], over=(8,))
    p.fact(lambda e, f: ptr[e] < ptr[f] + 1, over=(8, 8))
    facts = p.build().facts
    assert len(facts) == 3 and all(isinstance(f.cond, Compare) for f in facts)
    assert facts[0].over == (GridAxis("e", Const(8)),)
    assert facts[2].cond == Compare(
        "<=", Load("ptr", (Var("e"),)) + 1, Load("ptr", (Var("f"),)) + 1
    )


@pytest.mark.parametrize("act", [
    lambda p, t: p.fact(lambda e: t[e] + 1, over=(8,)),
    lambda p, t: p.fact(lambda e: True, over=(8,)),
    lambda p, t: p.fact(lambda e: et.dim("q") <= et.dim("q"), over=(8,)),
    lambda p, t: p.fact(lambda e, f: t[e] <= t[f], over=(8,)),
    lambda p, t: p.fact(t[0] <= 4, over=(8,)),
    lambda p, t: p.fact(lambda e: t[e] <= 4, over=("x",)),
])
def test_bad_facts_are_refused(act: Callable[..., object]):
    p = et.Program("p")
    with pytest.raises(errors.BadFact):
        act(p, p.input("t", (8,), et.i32, bound=4))
