"""Push is push: consumers start as their own cells fill, across iterations too."""

from __future__ import annotations

from dataclasses import replace

import eventtensor as et
from eventtensor.codegen.cpp import generate
from eventtensor.config import Options, environment
from eventtensor.ir.expr import Const, Var
from eventtensor.ir.plan import Nest, Notify
from eventtensor.runtime.cpu_kernel import CpuKernel, HoldBack


def order_of(kernel: CpuKernel) -> list[tuple[str, tuple[int, ...]]]:
    """Tasks by the time they ended."""
    records = sorted(kernel.trace.records, key=lambda r: r["t_end"])
    calls = kernel.plan.program.calls
    return [(calls[int(r["call"])].call.name,
             tuple(int(c) for c in r["coords"][: len(calls[int(r["call"])].vars)]))
            for r in records]


def test_a_consumer_runs_while_an_unrelated_producer_is_held_back(lab) -> None:
    """partial(3, 0) is held until everything that does not need it is done: finals 0..2 run with
    one worker stuck inside the producers' grid."""
    plan = lab.plan(lab.programs["row_sum"](), "push")
    kernel = CpuKernel(plan, Options(workers=2, debug=True, trace=True))
    arrays = lab.arrays(plan, {"n": 128})
    others = 4 * 4 + 4 - 2  # all partials and finals but the held one and final(3)
    kernel.launch({"n": 128}, arrays, hold=[HoldBack("partial", (3, 0), others)])
    lab.assert_same(arrays, lab.reference(plan, {"n": 128}, arrays))
    ended = order_of(kernel)
    held = ended.index(("partial", (3, 0)))
    assert held == others
    assert {("final", (0,)), ("final", (1,)), ("final", (2,))} <= set(ended[:held])
    kernel.close()


def test_a_held_expert_does_not_hold_the_others(lab) -> None:
    """One worker is inside scale(0, 0), one may wait in add(0, 0), the third does the rest."""
    plan = lab.plan(lab.programs["ragged"](), "push")
    kernel = CpuKernel(plan, Options(workers=3, debug=True, trace=True))
    arrays = lab.arrays(plan, {"m": 3})
    arrays["tiles"][:] = (2, 1, 3, 0, 2)
    kernel.launch({"m": 3}, arrays, hold=[HoldBack("scale", (0, 0), 14)])
    lab.assert_same(arrays, lab.reference(plan, {"m": 3}, arrays))
    ended = order_of(kernel)
    assert ended.index(("scale", (0, 0))) == 14
    assert ("add", (4, 1)) in ended[:14] and ("add", (0, 1)) in ended[:14]
    kernel.close()


def test_a_queue_group_in_a_loop_takes_cells_of_the_iteration_before(lab) -> None:
    plan = lab.plan(lab.programs["carried"](), "push")
    assert {c.schedule.group for c in plan.calls} == {0}
    kernel = CpuKernel(plan, Options(workers=3, debug=True))
    for n, layers in ((40, 6), (9, 1), (100, 3)):
        dims = {"n": n, "layers": layers}
        for seed in (0, 3):
            arrays = lab.arrays(plan, dims)
            expected = lab.reference(plan, dims, arrays)
            kernel.launch(dims, arrays, delay_seed=seed)
            lab.assert_same(arrays, expected)
    assert "et::Queue queue" in kernel.source
    kernel.close()


def test_a_group_with_producers_outside_falls_back_to_tickets(lab) -> None:
    """Where another group notifies the same event, nobody can tell when its last producer is
    claimed, so the calls are claimed in program order."""
    plan = lab.plan(lab.programs["row_sum"](), "push")
    event = plan.events[0]
    again = Notify(event.name, (Nest((), (), (Var("i"),)),))
    partial, final = plan.calls
    apart = replace(final, schedule=replace(final.schedule, group=1), notifies=(again,))
    both = replace(partial, waits=final.waits)
    mixed = replace(plan, calls=(both, apart))
    source = generate(mixed)
    assert "TicketTiles(worker, args.cell.ticket_partial" in source
    assert "claimed by ticket" in source


def test_seeds_with_a_count_of_zero_are_pushed(lab) -> None:
    """A cell that expects nothing does not keep its waiters out of the queue."""
    plan = lab.plan(lab.programs["row_sum"](), "push")
    event = plan.events[0]
    free = replace(plan, events=(replace(event, count=Const(0)),))
    kernel = CpuKernel(free, Options(workers=1))
    kernel.launch({"n": 70}, lab.arrays(plan, {"n": 70}))  # wrong numbers, but it ends
    kernel.close()


@et.task
def plus_one(x, out):
    out[:] = x + 1.0


@et.task
def sum_three(a, b, c, out):
    out[:] = a + b + c


def chain() -> et.Program:
    """first -> second -> third, and a join that waits for all of them through one event."""
    p = et.Program("chain")
    x, out = p.input("x", (4,), et.f32), p.output("out", (4,), et.f32)
    a, b, c = (p.scratch(k, (4,), et.f32) for k in "abc")
    all_done = p.events("all_done", (1,), count=3)
    for name, source, to in (("first", x, a), ("second", a, b), ("third", b, c)):
        p.call(plus_one, name=name, grid=(), reads=lambda s=source: s[:],
               writes=lambda t=to: t[:], notifies=lambda: all_done[0])
    p.call(sum_three, name="join", grid=(), reads=lambda: (a[:], b[:], c[:]),
           writes=lambda: out[:], waits=lambda: all_done[0])
    return p


def test_a_task_is_pushed_only_when_its_last_producer_is_claimed(lab) -> None:
    """With one worker an earlier push would be stuck: join would stand before third."""
    plan = lab.plan(chain(), "push")
    kernel = CpuKernel(plan, Options(workers=1, trace=True), replace(environment(), wait_limit_s=1))
    arrays = lab.arrays(plan, {})
    expected = lab.reference(plan, {}, arrays)
    kernel.launch({}, arrays)
    lab.assert_same(arrays, expected)
    assert [name for name, _ in order_of(kernel)] == ["first", "second", "third", "join"]
    assert "et::Queue queue" in kernel.source
    kernel.close()
