"""What stands before the waits of a task: places, small operands and words that are there by then;
and that results are those of program order all the same. No GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import eventtensor as et
from eventtensor.codegen.cpp.early import place_loads, sure_loads
from eventtensor.codegen.cuda import generate
from eventtensor.codegen.cuda.emitter import BlockDialect, _Loop
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import StuckWait
from eventtensor.ir.availability import DataAvailability
from eventtensor.ir.expr import Const, Load, Var, compare, select
from eventtensor.ir.plan import Plan
from eventtensor.ir.walk import evaluate
from tests.backend.test_cuda_emulated import Arrays, arrays_of, assert_close, assert_same
from tests.support.backends import copies, run_direct
from tests.support.early import (
    chosen,
    layered,
    normed,
    odd,
    paged,
    planned,
    residual,
    several,
    shifted,
    word_by_word,
)
from tests.support.emulated import emulated_kernel

Dims = dict[str, int]
PROGRAMS: dict[str, tuple[Callable[[], et.Program], list[Dims]]] = {
    "planned": (planned, [{"n": 5}, {"n": 1}]),
    "chosen": (chosen, [{"n": 5}, {"n": 2}]),
    "layered": (layered, [{"depth": 3, "n": 4}, {"depth": 1, "n": 2}]),
    "paged": (paged, [{"n": 4, "pages": 6}]),
    "residual": (residual, [{}, {}]),
    "residual_16": (lambda: residual(dtype=et.bf16), [{}, {}]),
    "odd": (odd, [{}, {}]),
    "shifted": (shifted, [{}, {}]),
    "several": (several, [{}]),
}
HOW = [(name, "counter") for name in PROGRAMS] + [
    ("residual", "tagged"),
    ("residual", "auto"),
    ("odd", "tagged"),
    ("residual_16", "tagged"),
    ("residual_16", "auto"),
]


def plan_of(program: et.Program, handoff: str = "counter") -> Plan:
    state = run_passes(program, Options(target="cuda", schedule="static", handoff=handoff))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def body_of(program: et.Program, handoff: str = "counter") -> str:
    """The body of `use`."""
    text = generate(plan_of(program, handoff)).text
    return text[text.index("bool body_use(") : text.index("bool task_use(")]


def in_order(body: str, *parts: str) -> None:
    at = 0
    for part in parts:
        assert part in body[at:], f"{part} does not come next in {body}"
        at = body.index(part, at) + len(part)


# ---- places ----------------------------------------------------------------------------------


def test_a_place_is_read_when_its_makers_are_done_and_before_the_last_wait() -> None:
    body = body_of(planned())
    in_order(body, "args.cell.plan_done", "= int64_t(args.which[i]);", "args.cell.make_done",
             "et::task_ready", "args.x + e1 * 4")
    assert body.count("args.which[i]") == 1


def test_the_plan_of_an_iteration_is_read_once_its_own_cell_is_full() -> None:
    in_order(body_of(layered()), "args.cell.plan_done, l,",
             "= int64_t(args.which[l * args.n + i]);", "args.cell.make_done")


def test_a_place_that_the_open_wait_orders_is_read_behind_it() -> None:
    body = body_of(chosen())
    in_order(body, "args.cell.plan_done", "args.which[i]")
    assert body.count("args.which[i]") == 1


def test_tables_of_rows_that_an_input_tells_are_made_before_the_wait() -> None:
    in_order(body_of(paged()), "x_rows0[_r0] = ", "args.cell.change_done", "x.data[x_rows0[i0]")


def test_what_only_one_branch_loads_is_not_read_ahead() -> None:
    a, b = Load("a", (Var("i"),)), Load("b", (Var("i"),))
    guarded = select(compare("<=", 1, a), b, 0)
    assert list(sure_loads(guarded)) == [a]


@pytest.mark.parametrize("make, known", [(planned, True), (chosen, False), (layered, True)])
def test_data_is_settled_by_a_wait_that_counts_all_its_writers(
    make: Callable[[], et.Program], known: bool
) -> None:
    plan = plan_of(make())
    placed = next(p for p in plan.program.calls if p.call.name == "use")
    (load,) = place_loads(placed.call.regions)
    before = DataAvailability(plan, placed)
    assert not before.are_loads_known(load)
    assert before.with_wait(plan.call("use").waits[0]).are_loads_known(load) == known


def test_a_writer_behind_the_reader_is_never_settled() -> None:
    plan = plan_of(layered())
    plan_call, use = plan.program.calls[0], plan.program.calls[-1]
    (load,) = place_loads(use.call.regions)
    assert not DataAvailability(plan, plan_call, plan.call("use").waits).are_loads_known(load)


# ---- operands --------------------------------------------------------------------------------


def test_a_small_operand_that_nobody_writes_is_on_its_way_while_the_task_waits() -> None:
    body = body_of(planned())
    in_order(
        body,
        "et::RegisterPrefetch<float, 4> gain_here(gain);",
        "gain_here.put(gain_tile);",
        "args.cell.make_done",
        "gain_tile[i0]",
    )
    assert "gain.data" not in body


def test_words_of_all_operands_are_asked_for_together() -> None:
    body = body_of(residual(), "tagged")
    assert body.count("et::read_tagged") == 1 and "ev_wait" not in body
    in_order(
        body,
        "gain_here(gain)",
        "et::read_tagged_with(worker, [&] {",
        "gain_here.put(gain_tile); }",
        "TENSOR_x",
        "TENSOR_y",
        "et::task_ready",
    )


def test_words_that_come_first_are_read_before_the_wait() -> None:
    in_order(
        body_of(residual(), "auto"),
        "et::read_tagged_with(",
        "TENSOR_y",
        "args.cell.many_done",
        "et::task_ready",
    )


def test_an_odd_number_of_words_is_read_one_by_one() -> None:
    assert "et::TaggedLoad<float, 1, 4, 1>" in body_of(odd(), "tagged")


def test_words_of_a_product_and_of_its_scale_are_read_together() -> None:
    body = body_of(normed(), "tagged")
    in_order(
        body,
        "et::read_tagged(worker, et::TaggedLoad<et::bf16, 2, 16, 1>{x",
        "et::TaggedLoad<float, 1, 16, 1>{ss",
        "et::task_ready",
        "et::skinny_gemm<",
    )
    assert body.count("et::read_tagged(") == 1


def test_words_of_a_product_give_what_program_order_does() -> None:
    plan = plan_of(normed(), "tagged")
    for seed in range(4):
        with emulated_kernel(plan, 2 + seed % 2, seed) as kernel:
            for k in range(3):
                got = arrays_of(plan, {}, k)
                kernel.launch({}, got)
                wanted = run_direct(plan.program, {}, arrays_of(plan, {}, k))
                assert_close(got, wanted, f"seed {seed}, launch {k}")


@pytest.mark.parametrize("dtype", (et.f32, et.bf16))
def test_a_word_whose_neighbour_came_without_it_is_reported(dtype: et.DType) -> None:
    plan = plan_of(word_by_word(dtype), "tagged")
    assert ", 1, 16, 1>" in generate(plan).text
    make, *rest = plan.program.body
    short = replace(make, grid=(replace(make.grid[0], extent=Const(15)),))
    broken = replace(plan, program=replace(plan.program, body=(short, *rest)))
    stuck = pytest.raises(StuckWait, match=r"use\(\d\) waits for.*x\[15\]")
    with emulated_kernel(broken, wait_limit_s=0.3) as kernel, stuck:
        kernel.launch({}, arrays_of(plan, {}))


# ---- barriers --------------------------------------------------------------------------------


def use_of(program: et.Program) -> str:
    text = generate(plan_of(program)).text
    return text[text.index("body_use(") : text.index("bool task_use(")]


def test_loops_over_the_same_elements_are_one_where_no_data_crosses_threads() -> None:
    body = use_of(several())
    first = body[body.index("v6[i0] = ") : body.index("v9_at1")]
    assert "o.data[i0] = v6[i0];" in first and "q.data[i0] = (v6[i0] * v6[i0]);" in first
    assert first.count("for (") == 0 == first.count("et::sync();")


def test_a_loop_that_reads_elsewhere_comes_behind_a_barrier() -> None:
    body = use_of(several())
    in_order(body, "q.data[i0] = ", "et::sync();", "= (v6[i0] + v9_at1[i0]);")


def test_regions_of_one_tensor_are_one_buffer() -> None:
    body = use_of(shifted())
    in_order(body, "x_tile[i0] = x.data[i0];", "et::sync();", "out.data[i0] = x_tile[i0];")
    copied = _Loop(0, ((), ()), {"args.h": False}, {"x_tile"})
    assert copied.takes({"x_tile": True}, "args.o")
    assert not copied.takes({"x_tile": True}, "args.h")
    assert not copied.takes({"x_tile": False}, "args.o")


@pytest.mark.parametrize(
    "text, quiet",
    [
        ("const et::View<float, 1> out{args.o + et::div(i, 2) * 4, {4}, {1}};", True),
        ("const int64_t e1 = std::min<int64_t>(4, args.n - i);", True),
        ("auto* const v9_at1 = v6 + 300;", True),
        ("const float v9 = et::rsqrt(v8 + 0.5f);", True),
        ("// a comment", True),
        ("et::task_ready(worker);", True),
        ("const int64_t e1 = int64_t(args.which[i]);", False),
        ("const et::RegisterPrefetch<float, 4> gain_here(gain);", False),
        ("const int32_t v2 = et::from_first(v1);", False),
        ("worker.arena.rewind(m4);", False),
        ("v5[0] = v4;", False),
        ("}", False),
    ],
)
def test_a_line_that_touches_memory_asks_for_a_barrier(text: str, quiet: bool) -> None:
    out = BlockDialect()
    out.barrier()
    out.line(text)
    assert out.met() == quiet


def test_a_wait_ends_at_a_barrier_unless_it_may_not_be_done() -> None:
    out, wait = BlockDialect(), "if (!et::ev_wait(worker, args.cell.a, 0, 1)) return false;"
    out.line(wait)
    assert out.met()
    out.line("if (1 <= l)")
    out.deeper()
    out.line(wait)
    out.shallower()
    assert not out.met()


# ---- results ---------------------------------------------------------------------------------


def arrays_in_range(plan: Plan, dims: Dims, seed: int) -> Arrays:
    """Random numbers; those that are places lie in range."""
    found = arrays_of(plan, dims, seed)
    for t in plan.program.tensors:
        if t.bound is not None and t.name in found:
            found[t.name] %= evaluate(t.bound[1], dims) + 1
    return found


@et.task
def doubled(x, out):
    out[:] = x + x


@pytest.mark.parametrize("cells", [5, 256, 300])
def test_one_look_has_any_number_of_cells_that_run_time_data_names(cells: int) -> None:
    """More than there are threads, too."""
    p = et.Program("look")
    x, at = p.input("x", (cells,), et.f32), p.input("at", (cells,), et.i32, bound=cells - 1)
    made, done = p.scratch("made", (cells,), et.f32), p.events("done", (cells,), count=1)
    out = p.output("out", (cells,), et.f32)
    p.call(doubled, name="make", grid=(cells,), reads=lambda i: x[i], writes=lambda i: made[i],
           notifies=lambda i: done[i])
    p.call(doubled, name="take", grid=(), reads=lambda: made[at[:]], writes=lambda: out[:],
           waits=lambda: done[at[:]])
    plan = plan_of(p)
    assert "et::all_reached(" in generate(plan).text
    got = arrays_in_range(plan, {}, cells)
    wanted = run_direct(plan.program, {}, copies(got))
    with emulated_kernel(plan, 3) as kernel:
        kernel.launch({}, got)
    assert_same(got, wanted, f"{cells} cells")


@pytest.mark.parametrize("name, handoff", HOW)
def test_results_are_those_of_program_order(name: str, handoff: str) -> None:
    make, launches = PROGRAMS[name]
    plan = plan_of(make(), handoff)
    for seed in (0, 1):
        with emulated_kernel(plan, 3, seed) as kernel:
            for k, dims in enumerate(launches):
                got = arrays_in_range(plan, dims, k)
                wanted = run_direct(plan.program, dims, copies(got))
                kernel.launch(dims, got)
                assert_same(got, wanted, f"seed {seed}, launch {k}, {dims}")
