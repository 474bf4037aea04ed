"""Which hand-off each edge gets: what is legal, what is refused and why, what is cheap; text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eventtensor as et
from eventtensor.compiler import read_options, run_passes
from eventtensor.config import Options
from eventtensor.errors import BadOption
from eventtensor.ir.plan import HandoffKind, Plan, Policy
from eventtensor.ir.walk import evaluate
from tests.support.handoffs import (
    accumulated,
    add,
    both,
    broadcast,
    chained,
    columns,
    copies_of_rows,
    copy,
    gathered,
    halo,
    implied,
    indexed,
    layers,
    matrix,
    near_and_far,
    overwritten,
    padded,
    pair,
    two_ways,
)
from tests.support.tables import listed, ranked, single

COUNTER, SAME_WORKER, TAGGED, BULK, TAGGED_INDEX, RECOMPUTE = (
    HandoffKind.counter,
    HandoffKind.same_worker,
    HandoffKind.tagged,
    HandoffKind.bulk,
    HandoffKind.tagged_index,
    HandoffKind.recompute,
)


def plan_of(program: et.Program, handoff="auto", schedule="static") -> Plan:
    if not isinstance(handoff, str):
        handoff = tuple(handoff.items())
    state = run_passes(program, Options(target="cuda", schedule=schedule, handoff=handoff))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def kinds(plan: Plan) -> dict[tuple[str, str], HandoffKind]:
    return {(h.event, h.call): h.kind for h in plan.handoffs}


def refusal(program: et.Program, handoff, schedule="static") -> str:
    with pytest.raises(BadOption) as caught:
        plan_of(program, handoff, schedule)
    return str(caught.value)


# ---- worker --------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ("auto", "static:affine", "static:round_robin"))
def test_tiles_that_stay_on_their_worker_need_no_counter(schedule: str) -> None:
    plan = plan_of(pair(), schedule=schedule)
    assert kinds(plan) == {("make_done", "use"): SAME_WORKER}
    assert plan.call("make").schedule.shift == plan.call("use").schedule.shift


def test_affine_takes_the_shift_of_its_producer_even_if_another_grid_lies_between() -> None:
    p = copies_of_rows(("first", "a", "o"), ("make", "a", "x"), ("use", "x", "q"))
    plan = plan_of(p, schedule="auto")
    how = {c.call: c.schedule for c in plan.calls}
    assert how["use"].policy is Policy.affine and "make" in how["use"].reason
    assert how["use"].shift == how["make"].shift != how["first"].shift
    assert kinds(plan) == {("make_done", "use"): SAME_WORKER}


def test_round_robin_does_not_shift() -> None:
    plan = plan_of(pair(), schedule="static:round_robin")
    assert [evaluate(c.schedule.shift, {"n": 5}) for c in plan.calls] == [0, 0]


WORKER_REFUSED: dict[str, tuple[Callable[[], et.Program], str, str]] = {
    "claimed": (pair, "ticket", "claimed at run time"),
    "other tiles": (lambda: pair(8, 16), "static:round_robin", "other workers"),
    "other shift": (pair, "static:balanced", "other workers"),
    "neighbours": (halo, "static:round_robin", "other"),
}


@pytest.mark.parametrize("name", WORKER_REFUSED)
def test_worker_is_refused_where_the_owner_may_differ(name: str) -> None:
    make, schedule, why = WORKER_REFUSED[name]
    assert why in refusal(make(), {"make_done": "same_worker"}, schedule)


def test_worker_is_refused_for_tiles_that_need_others_of_an_equal_grid() -> None:
    @et.task
    def shifted(x, out):
        out[:] = x

    p = et.Program("rotated")
    a, x, o = p.input("a", (8,), et.f32), p.scratch("x", (8,), et.f32), p.output("o", (8,), et.f32)
    p.call(copy, name="make", grid=(8,), reads=lambda i: a[i], writes=lambda i: x[i])
    p.call(shifted, name="use", grid=(8,), reads=lambda i: x[7 - i], writes=lambda i: o[i])
    assert "other tiles than its own" in refusal(
        p, {"make_done": "same_worker"}, "static:round_robin"
    )


def test_an_event_keeps_its_cells_for_those_who_still_count() -> None:
    how = (("near", "static:affine"), ("far", "ticket"))
    plan = plan_of(near_and_far(), "same_worker", schedule=how)
    assert kinds(plan) == {("make_done", "near"): SAME_WORKER, ("make_done", "far"): COUNTER}


# ---- flag ----------------------------------------------------------------------------------


def test_a_small_broadcast_carries_its_flag() -> None:
    plan = plan_of(broadcast())
    (h,) = plan.handoffs
    assert (h.kind, h.tensors) == (TAGGED, ("x",)) and "64 words" in h.reason
    assert [b.tensor for b in plan.words] == ["x"] and not plan.buffers
    assert evaluate(plan.word_bytes, {}) == 64 * 8


def test_words_have_memory_of_their_own() -> None:
    plan = plan_of(pair(), "tagged")
    assert [b.tensor for b in plan.words] == ["x"]
    assert evaluate(plan.word_bytes, {"n": 3}) == 3 * 16 * 4 * 8
    assert evaluate(plan.workspace, {"n": 3}) == 0


def test_small_elements_have_small_words() -> None:
    plan = plan_of(pair(dtype=et.bf16), "tagged")
    assert evaluate(plan.word_bytes, {"n": 3}) == 3 * 16 * 4 * 4


@pytest.mark.parametrize(
    "words, dtype, kind",
    [
        (4224, et.f32, TAGGED),
        (5280, et.f32, COUNTER),
        (8448, et.bf16, TAGGED),
        (10560, et.bf16, COUNTER),
    ],
)
def test_an_all_to_all_of_many_words_counts(words: int, dtype: et.DType, kind: HandoffKind) -> None:
    each = words // 132
    p = et.Program("all_to_all")
    a, x = p.input("a", (words,), dtype), p.scratch("x", (words,), dtype)
    o = p.output("o", (132, words), dtype)
    p.call(copy, name="make", grid=(132,), reads=lambda i: a[i * each : i * each + each],
           writes=lambda i: x[i * each : i * each + each])
    p.call(copy, name="use", grid=(132,), reads=lambda i: x[:], writes=lambda i: o[i, :])
    (h,) = plan_of(p).handoffs
    assert h.kind is kind and (kind is TAGGED or f"{words} by one task" in h.reason)
    assert kinds(plan_of(p, "tagged")) == {("make_done", "use"): TAGGED}


FLAG_REFUSED: dict[str, tuple[Callable[[], et.Program], str]] = {
    "no scratch": (lambda: pair(role="output"), "no scratch"),
    "too wide": (lambda: pair(dtype=et.i64), "do not fit one word"),
    "indices": (indexed, "decide indices"),
    "accumulated": (accumulated, "accumulated into"),
    "gathered": (gathered, "run-time data decides"),
    "padded": (padded, "padded"),
    "rewritten": (lambda: layers(False), "written again"),
    "read before": (overwritten, "it also puts make before use on h (war)"),
}


@pytest.mark.parametrize("name", FLAG_REFUSED)
def test_tagged_is_refused_with_the_reason(name: str) -> None:
    make, why = FLAG_REFUSED[name]
    assert why in refusal(make(), {"make_done": "tagged"})


def test_a_loop_axis_makes_flags_legal() -> None:
    plan = plan_of(layers(True), {"make_done": "tagged"})
    assert kinds(plan)["make_done", "use"] is TAGGED


def test_an_event_that_holds_an_implied_order_is_no_flag() -> None:
    why = refusal(implied("output"), {"A_done": "tagged"})
    assert "it also puts A before C on y" in why
    plan = plan_of(implied("output"))
    assert all(h.kind is not TAGGED for h in plan.handoffs if h.event == "A_done")


def test_what_an_event_orders_besides_may_carry_flags_too() -> None:
    plan = plan_of(implied(), {"A_done": "tagged"}, schedule="ticket")
    assert {h.tensors for h in plan.handoffs if h.event == "A_done"} == {("x", "y")}


def test_an_event_may_guard_several_tensors_with_flags() -> None:
    p = et.Program("pairs")
    a, o = p.input("a", (8,), et.f32), p.output("o", (8,), et.f32)
    x, y = p.scratch("x", (8,), et.f32), p.scratch("y", (8,), et.f32)
    p.call(both, name="A", grid=(), reads=lambda: a[:], writes=lambda: (x[:], y[:]))
    p.call(add, name="B", grid=(2,), reads=lambda i: (x[i * 4 : i * 4 + 4], y[i * 4 : i * 4 + 4]),
           writes=lambda i: o[i * 4 : i * 4 + 4])
    (h,) = plan_of(p, schedule="ticket").handoffs
    assert h.kind is TAGGED and h.tensors == ("x", "y") and "8 words" in h.reason


def test_flags_are_legal_together_not_only_one_by_one() -> None:
    def make() -> et.Program:
        return two_ways("output")

    events = {h.event: h for h in plan_of(make(), "tagged").handoffs if h.event.startswith("P")}
    assert sorted(h.kind.value for h in events.values()) == ["counter", "tagged"]
    for event in events:
        assert any(h.kind is TAGGED for h in plan_of(make(), {event: "tagged"}).handoffs)
    assert "on w" in refusal(make(), dict.fromkeys(events, "tagged"))


def test_every_reader_of_a_flagged_tensor_counts_as_its_edge() -> None:
    p = et.Program("late")
    a, o = p.input("a", (8,), et.f32), p.output("o", (8,), et.f32)
    x, z = p.scratch("x", (8,), et.f32), p.scratch("z", (8,), et.f32)
    p.call(copy, name="A", grid=(), reads=lambda: a[:], writes=lambda: x[:])
    p.call(copy, name="B", grid=(), reads=lambda: x[:], writes=lambda: z[:])
    p.call(add, name="C", grid=(), reads=lambda: (z[:], x[:]), writes=lambda: o[:])
    plan = plan_of(p, {"A_done": "tagged"}, schedule="ticket")
    assert kinds(plan)["A_done", "B"] is TAGGED and "x" in [b.tensor for b in plan.words]


def test_several_writers_share_the_words_of_one_tensor() -> None:
    plan = plan_of(chained(), "tagged", schedule="ticket")
    assert set(kinds(plan).values()) == {TAGGED} and {h.tensors for h in plan.handoffs} == {("x",)}


def test_an_event_may_count_beside_the_flags_of_its_tensor() -> None:
    plan = plan_of(chained(), {"take_done": "counter", "step_done": "tagged"}, schedule="ticket")
    assert (
        kinds(plan)["take_done", "step"] is COUNTER and kinds(plan)["step_done", "step"] is TAGGED
    )


# ---- bulk ----------------------------------------------------------------------------------


def test_a_large_operand_of_a_product_comes_in_bulk() -> None:
    (h,) = plan_of(matrix(rows=128)).handoffs
    assert (h.kind, h.tensors) == (BULK, ("x",)) and "32768 bytes" in h.reason


def test_a_small_operand_is_not_copied_unasked() -> None:
    assert BULK not in kinds(plan_of(matrix(rows=1))).values()
    assert kinds(plan_of(matrix(rows=1), "bulk")) == {("make_done", "use"): BULK}


BULK_REFUSED: dict[str, tuple[Callable[[], et.Program], str]] = {
    "no scratch": (lambda: pair(role="output"), "no scratch"),
    "gathered": (gathered, "gathered rows"),
    "padded": (padded, "padded"),
    "not 16 bytes": (lambda: matrix(rows=1, width=5), "multiple of 16 bytes"),
    "apart": (columns, "lie apart"),
    "not read": (indexed, "no operand of its producers"),
}


@pytest.mark.parametrize("name", BULK_REFUSED)
def test_bulk_is_refused_with_the_reason(name: str) -> None:
    make, why = BULK_REFUSED[name]
    assert why in refusal(make(), {"make_done": "bulk"})


# ---- words of the user ---------------------------------------------------------------------


def test_unknown_events_and_words_are_refused() -> None:
    assert "unknown events: nobody" in refusal(pair(), {"nobody": "tagged"})
    assert "unknown handoff 'mail'" in refusal(pair(), "mail")


def test_one_word_is_followed_where_it_is_legal() -> None:
    assert set(kinds(plan_of(two_ways("output"), "tagged", "ticket")).values()) == {COUNTER, TAGGED}
    assert "cannot be handed off by same_worker" in refusal(pair(), "same_worker", "ticket")
    assert set(kinds(plan_of(broadcast(), "counter")).values()) == {COUNTER}


def test_other_targets_count_and_hold_plain_scratch() -> None:
    state = run_passes(broadcast(), Options(target="cpu", handoff="tagged"))
    assert state.plan is not None and not state.plan.handoffs and not state.plan.words
    assert [b.tensor for b in state.plan.buffers] == ["x"]


def test_what_only_indices_read_counts_for_that_reason() -> None:
    edge = next(h for h in plan_of(indexed()).handoffs if h.call == "use")
    assert edge.kind is COUNTER and "values of x decide indices" in edge.reason


def test_explain_and_the_plan_show_kind_and_reason() -> None:
    shown = et.explain(broadcast(), schedule="static", target="cuda")
    assert "to use by tagged (x): at most 64 words for a task" in shown
    assert "words of x: 512 bytes" in shown
    text = str(plan_of(pair(), schedule="auto"))
    assert "handoff make_done -> use: same_worker; because the tile before it on the same" in text
    assert "words x at 0; 512 bytes" in str(plan_of(broadcast()))


# ---- tables --------------------------------------------------------------------------------


def test_numbers_that_the_loader_goes_by_travel_in_words_and_the_tasks_wait_as_ever() -> None:
    plan = plan_of(listed())
    (edge,) = (h for h in plan.handoffs if h.call == "go")
    assert (edge.event, edge.kind, edge.tensors) == ("made", TAGGED_INDEX, ("at",))
    assert [w.event for w in plan.call("go").waits] == ["made"]
    assert [b.tensor for b in plan.words] == ["at"]


@pytest.mark.parametrize(
    ("program", "event", "why"),
    [
        (pair, "make_done", "it is no table that the producer warp waits for"),
        (lambda: listed(256), "made", "the producer warp cannot keep a row of at"),
        (lambda: listed(makers=2), "made", "several tasks write a row of at"),
        (lambda: listed(times=2), "made", "elements of at are written again in a launch"),
        (single, "plan_done", "the producer warp cannot keep a row of at"),
    ],
)
def test_what_is_no_table_of_the_loader_is_refused_with_the_reason(
    program: Callable[[], et.Program], event: str, why: str
) -> None:
    assert why in refusal(program(), {event: "tagged_index"})
    assert TAGGED_INDEX not in kinds(plan_of(program())).values()


# ---- numbers that are found again ------------------------------------------------------------


def test_nobody_waits_for_numbers_that_can_be_found_again() -> None:
    plan = plan_of(ranked())
    (edge,) = (h for h in plan.handoffs if h.call == "go")
    assert (edge.event, edge.kind, edge.tensors) == ("known", RECOMPUTE, ("at",))
    assert [b.tensor for b in plan.words] == ["scores"]


def test_one_word_for_all_events_finds_again_what_can_be() -> None:
    assert plan_of(ranked(), "recompute").handoffs == plan_of(ranked()).handoffs
    assert "at is not written by one task" in refusal(ranked(added=True), "recompute")


@pytest.mark.parametrize(
    ("program", "handoff", "why"),
    [
        (pair, {"make_done": "recompute"}, "it is no table that the producer warp waits for"),
        (listed, {"made": "recompute"}, "list0 does not find at as the largest of a row"),
        (lambda: listed(makers=2), {"made": "recompute"}, "at is not written by one task"),
        (
            ranked,
            {"known": "recompute", "scored": "counter"},
            "scores, from which at is found, carries no",
        ),
        (
            lambda: ranked(also=True),
            {"known": "recompute"},
            "it also puts rank before tell on at (raw)",
        ),
        (lambda: ranked(told=True), {"known": "recompute"}, "go reads the numbers themselves"),
        (lambda: ranked(tells=True), {"known": "recompute"}, "go reads the numbers themselves"),
        (lambda: ranked(added=True), {"known": "recompute"}, "at is not written by one task"),
        (
            lambda: ranked(row=16),
            {"known": "recompute"},
            "rank does not find at as the largest of a row",
        ),
        (
            lambda: ranked(times=3),
            {"known": "recompute"},
            "at is not read in the iteration that finds it",
        ),
    ],
)
def test_what_cannot_be_found_again_is_refused_with_the_reason(
    program: Callable[[], et.Program], handoff: dict[str, str], why: str
) -> None:
    assert why in refusal(program(), handoff)
    rest = {e: word for e, word in handoff.items() if word != "recompute"}
    assert RECOMPUTE not in kinds(plan_of(program(), rest)).values()


@pytest.mark.parametrize(("old", "new"), [("flag", TAGGED), ("worker", SAME_WORKER)])
def test_an_old_name_works_and_names_the_new_one(old: str, new: HandoffKind) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new.value} now"):
        known = read_options("cuda", {"handoff": {"make_done": old}, "schedule": "static:affine"})
    plan = run_passes(pair(), known).plan
    assert plan is not None and kinds(plan) == {("make_done", "use"): new}


def test_the_warning_of_an_old_name_stands_at_the_users_line() -> None:
    """Python shows nobody a warning that stands inside a package."""
    with pytest.warns(DeprecationWarning) as found:
        et.explain(pair(), target="cuda", handoff="flag")
        et.compile(pair(), target="interp", handoff={"make_done": "flag"})
    assert [w.filename for w in found] == [__file__] * 2
