"""Which operands the loader brings, which it does not and why; layouts of regions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.codegen.cuda.threads import THREADS, WARPS
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.expr import Const, Dim, Var, floordiv, minimum, mod
from eventtensor.ir.layout import divisor, layout_of
from eventtensor.ir.plan import Plan, StreamKind
from eventtensor.ir.products import product_of
from eventtensor.ir.walk import evaluate
from eventtensor.targets.h200 import H200
from tests.support.handoffs import copy
from tests.support.streams import (
    PROGRAMS,
    chunked,
    kinds,
    layers,
    linear,
    packed,
    packed_product,
    panels_shape,
    plan_of,
    state,
    walks,
)
from tests.support.tables import product, single

ROWS, PACKED, WHOLE = StreamKind.rows, StreamKind.packed, StreamKind.whole
LOOP = StreamKind.loop


def test_weights_that_a_product_uses_up_come_by_rows() -> None:
    plan = plan_of(linear())
    assert kinds(plan)[("go", "w")] is ROWS
    (s,) = (s for s in plan.streams if s.kind is ROWS)
    assert s.k_bytes_per_stage == 1024 and s.columns == 16  # 512 columns of two bytes


def test_a_long_row_is_cut_into_chunks() -> None:
    (s,) = (s for s in plan_of(linear(16, 1056, 20, most=8)).streams if s.kind is ROWS)
    assert s.k_bytes_per_stage == 2048  # of 2112 bytes


def test_the_other_side_must_fit_beside_the_ring() -> None:
    assert ROWS not in kinds(plan_of(linear(16, 4096, 64))).values()


def test_packed_panels_need_no_room_for_the_other_side() -> None:
    """Many columns go line by line: whether there are many, the launch decides."""
    (s,) = plan_of(packed(most=128)).streams
    assert s.kind is PACKED and s.columns == 128
    assert "line by line for many columns" in s.reason
    assert "line" not in plan_of(packed()).streams[0].reason


def test_columns_without_a_bound_are_not_streamed() -> None:
    p = et.Program("ragged_columns")
    ends = p.input("ends", (5,), et.i32, monotone=True, bound=(0, 128))
    x, w = p.input("x", (128, 1024), et.bf16), p.weight("w", panels_shape(4, 1024), et.bf16)
    y = p.output("y", (128, 64), et.f32, partial=True)
    p.call(packed_product, name="go", grid=(4,),
           reads=lambda i: (x[ends[i] : ends[i + 1], :], w[:, :, :, :, :, :, :]),
           writes=lambda i: y[ends[i] : ends[i + 1], :])
    assert ("go", "w") not in kinds(plan_of(p))


def parts_of_rows(maker: str, most: int) -> et.Program:
    """Products with at most so many columns; how many, run-time data says: an input, or what one
    task or one for each number has computed."""
    p = et.Program("parts_of_rows")
    given = p.input("given", (5,), et.i32, monotone=True, bound=(0, 500))
    x, w = p.input("x", (500, 1024), et.bf16), p.weight("w", panels_shape(4, 1024), et.bf16)
    y = p.state("y", (500, 64), et.f32)
    ends = given if maker == "given" else p.scratch("ends", (5,), et.i32, monotone=True,
                                                    bound=(0, 500))
    if maker == "one":
        p.call(copy, name="plan", grid=(), reads=lambda: given[:], writes=lambda: ends[:])
    if maker == "each":
        p.call(copy, name="plan", grid=(5,), reads=lambda i: given[i], writes=lambda i: ends[i])

    def some(i):
        return slice(ends[i], et.min(ends[i] + most, ends[i + 1]))

    p.call(packed_product, name="go", grid=(4,), writes=lambda i: y[some(i), :],
           reads=lambda i: (x[some(i), :], w[:, :, :, :, :, :, :]))
    return p


@pytest.mark.parametrize(("maker", "most", "after"), [
    ("given", 128, ()), ("one", 128, ("plan_done",)), ("one", 8, ()), ("each", 8, ()),
])
def test_many_columns_go_by_lines_if_the_loader_learns_how_many(
    maker: str, most: int, after: tuple[str, ...]
) -> None:
    """By their number the order of pages is chosen; few are staged as a whole in any case."""
    (s,) = (s for s in plan_of(parts_of_rows(maker, most)).streams if s.call == "go")
    assert (
        s.kind is PACKED
        and s.columns == most
        and s.is_b_streamed is (most > 8)
        and s.wait_events == after
    )


def test_many_columns_whose_number_each_tile_waits_for_are_not_streamed() -> None:
    assert ("go", "w") not in kinds(plan_of(parts_of_rows("each", 128)))


@pytest.mark.parametrize("columns, row, wanted", [
    (64, 512, True), (16, 2048, True), (2, 16384, True), (65, 128, False), (128, 2048, False),
    (3, 16384, False), (1, 57344, False),
])
def test_what_is_staged_as_a_whole(columns: int, row: int, wanted: bool) -> None:
    assert H200.costs.stream.stages_whole_operand(columns, row) == wanted


def test_one_side_of_a_product_is_paged_and_the_other_held() -> None:
    plan = plan_of(linear(16, 96, 48))
    assert kinds(plan) == {("go", "x"): WHOLE, ("go", "w"): ROWS}


def test_packed_panels_are_recognised_through_their_views() -> None:
    plan = plan_of(packed())
    assert kinds(plan)[("go", "w")] is PACKED
    found = product_of(plan.program.call("go").body, 1)
    assert found is not None and found.packed and not found.left
    assert (found.span, found.bundle) == (128, 1)


@pytest.mark.parametrize(("bundle", "columns"), [(1, 512), (2, 256), (4, 128)])
def test_a_page_has_four_spans_of_panels(bundle: int, columns: int) -> None:
    """Whichever way they lie together, a page is one copy."""
    (s,) = plan_of(packed(4, 1024, 8, 8, bundle=bundle)).streams
    assert (s.bundle, s.k_bytes_per_stage, s.stage_bytes) == (bundle, 2 * columns, 16 * 1024)


def test_three_panels_do_not_lie_together() -> None:
    assert ("go", "w") not in kinds(plan_of(packed(3, 1024, 8, 6, bundle=3)))


def test_a_bundle_may_be_taken_by_its_number() -> None:
    @et.task
    def one(x, w, out):
        out[:] = x @ w.transpose(1, 2, 4, 0, 3, 5).reshape(32, 1024).T

    p = et.Program("one_bundle")
    x, w = p.input("x", (4, 1024), et.bf16), p.weight("w", panels_shape(6, 1024, 2), et.bf16)
    y = p.output("y", (4, 96), et.f32)
    p.call(one, name="go", grid=(3,), reads=lambda i: (x[:, :], w[i, :, :, :, :, :, :]),
           writes=lambda i: y[:, i * 32 : i * 32 + 32])
    (s,) = plan_of(p).streams
    assert s.kind is PACKED and s.bundle == 2


def test_held_pages_come_first_and_products_in_the_order_of_the_body() -> None:
    plan = plan_of(layers(1024), handoff="counter")
    of_layer = [(s.arg, s.kind) for s in plan.streams if s.call == "layer"]
    assert of_layer == [(1, ROWS), (2, ROWS)]
    assert kinds(plan)[("take", "scale")] is WHOLE
    assert ("layer", "h") not in kinds(plan) and ("give", "h") not in kinds(plan)


def test_what_threads_ask_for_ahead_takes_no_page() -> None:
    plan = plan_of(layers(256), handoff="counter")  # where there is something to wait for
    assert H200.costs.handoff.max_prefetch_elements == 3 * (THREADS - THREADS // WARPS)
    assert {call for call, tensor in kinds(plan) if tensor == "scale"} == {"take"}
    give = generate(plan).text.split("body_give(")[1].split("\n}")[0]
    assert "scale = scale[0, 0:256], asked for ahead" in give


def test_a_small_state_that_is_written_later_comes_by_a_page() -> None:
    p = et.Program("later")
    given, old = p.input("given", (256,), et.f32), p.state("old", (256,), et.f32)
    passed, y = p.scratch("passed", (256,), et.f32), p.output("y", (256,), et.f32)
    p.call(copy, name="give", grid=(), reads=lambda: given[:], writes=lambda: passed[:])
    p.call(added, grid=(), reads=lambda: (passed[:], old[:]), writes=lambda: y[:])
    p.call(copy, name="keep", grid=(), reads=lambda: passed[:], writes=lambda: old[:])
    assert kinds(plan_of(p, handoff="counter"))[("added", "old")] is WHOLE


def test_a_task_that_takes_many_pages_holds_none() -> None:
    """A held page keeps its slot: with more pages than slots, loader and tasks would wait for each
    other."""
    assert kinds(plan_of(packed())) == {("go", "w"): PACKED}
    assert kinds(plan_of(packed(1, 256, 128))) == {("go", "w"): PACKED}
    assert kinds(plan_of(packed(1, 256))) == {("go", "x"): WHOLE, ("go", "w"): PACKED}


def test_a_loop_takes_a_page_an_iteration_and_still_waits_chunk_by_chunk() -> None:
    plan = plan_of(chunked())
    assert kinds(plan)[("go", "w")] is LOOP and ("go", "scale") not in kinds(plan)
    (wait,) = plan.call("go").waits
    assert wait.loop is not None
    assert list(kinds(plan_of(walks())).values()) == [LOOP, LOOP]


@et.task
def added(x, y, out):
    out[:] = x + y


@et.task
def ragged_walk(x, out):
    total = et.zeros((512,), et.f32)
    for c in et.range((x.shape[0] + 3) // 4):
        total[:] = total + x[c * 4 : c * 4 + 4, :].sum(0)
    out[:] = total


def test_a_slice_that_may_overhang_is_read_where_it_lies() -> None:
    p, n = et.Program("ragged"), et.dim("n", max=64)
    x, y = p.input("x", (n, 512), et.f32), p.output("y", (512,), et.f32)
    p.call(ragged_walk, name="go", grid=(), reads=lambda: x[:, :], writes=lambda: y[:])
    assert kinds(plan_of(p)) == {}


@et.task(cuda="out.data[0] = x.data[0];")
def by_hand(x, out):
    out[:] = x


def test_a_hand_tuned_body_reads_its_operands_where_they_lie() -> None:
    p = et.Program("hand")
    x, y = p.weight("x", (1024,), et.f32), p.output("y", (1024,), et.f32)
    p.call(by_hand, name="go", grid=(), reads=lambda: x[:], writes=lambda: y[:])
    assert plan_of(p).streams == ()


def test_a_state_may_be_read_ahead_of_the_call_that_renews_it() -> None:
    assert kinds(plan_of(state()))[("use", "m")] is ROWS


@pytest.mark.parametrize("schedule, streamed", [("static", True), ("ticket", True),
                                                ("push", False)])
def test_tasks_from_a_queue_are_not_known_ahead(schedule: str, streamed: bool) -> None:
    found = plan_of(linear(), schedule=schedule).streams
    assert [s.is_streamed for s in found if s.kind is ROWS] == [streamed]
    assert all(s.is_streamed is streamed for s in found)


def test_the_stream_can_be_switched_off_and_is_only_for_cuda() -> None:
    (s,) = plan_of(linear(), stream=False).streams
    assert s.kind is ROWS and not s.is_streamed
    assert run_passes(linear(), Options(target="cpu")).plan.streams == ()


def one(w_shape, w_at, dtype=et.bf16, k=64, **facts) -> Plan:
    """One call that multiplies x (4, k) by some rows of w."""
    p = et.Program("one")
    x, w = p.input("x", (4, k), dtype), p.input("w", w_shape, dtype)
    y = p.output("y", (8, 4, 16), et.f32)
    p.call(product, name="go", grid=(8,), reads=lambda i: (x[:, :], w_at(w, i)),
           writes=lambda i: y[i, :, :])
    return plan_of(p, **facts)


NOT_STREAMED = {
    "rows that do not begin at a multiple of 16 bytes": lambda: one(
        (128, 68), lambda w, i: w[i * 16 : i * 16 + 16, 2:66]),
    "padded": lambda: one(
        (128, 64), lambda w, i: w.padded((1, 0), (1, 0), 0.0)[i * 16 - 1 : i * 16 + 15, :]),
}


@pytest.mark.parametrize("why", NOT_STREAMED)
def test_what_a_copy_cannot_take_is_read_where_it_lies(why: str) -> None:
    assert ("go", "w") not in kinds(NOT_STREAMED[why]())


def test_columns_of_a_wider_tensor_can_be_copied_row_by_row() -> None:
    plan = one((128, 128), lambda w, i: w[i * 16 : i * 16 + 16, 64:128])
    assert kinds(plan)[("go", "w")] is ROWS


def test_f32_products_keep_their_order_so_their_weights_are_held() -> None:
    plan = one((128, 64), lambda w, i: w[i * 16 : i * 16 + 16, :], et.f32)
    assert kinds(plan)[("go", "w")] is WHOLE


def routed(computed: bool, ragged: bool = False) -> et.Program:
    """Weights at a place that run-time data decides: an input, or what a task has computed."""
    p = et.Program("routed")
    x, w = p.input("x", (4, 64), et.bf16), p.weight("w", (8, 16, 64), et.bf16)
    given, many = p.input("given", (8,), et.i32, bound=(0, 7)), p.input("many", (), et.i32, bound=8)
    made = p.scratch("made", (8,), et.i32, bound=(0, 7))
    used = p.scratch("used", (), et.i32, bound=8)
    at, y = made if computed else given, p.state("y", (8, 4, 16), et.f32)
    p.call(copy_both, name="plan", grid=(), reads=lambda: (given[:], many[()]),
           writes=lambda: (made[:], used[()]))
    p.call(product, name="go", grid=(used[()] if ragged else 8,),
           reads=lambda i: (x[:, :], w[at[i], :, :]), writes=lambda i: y[i, :, :])
    return p


@et.task
def copy_both(x, y, to_x, to_y):
    to_x[:] = x
    to_y[:] = y


@pytest.mark.parametrize(("computed", "ragged", "after"), [
    (False, False, ()), (True, False, ("plan_done",)), (True, True, ()),
])
def test_an_index_is_known_ahead_if_waits_for_one_cell_settle_it(
    computed: bool, ragged: bool, after: tuple[str, ...]
) -> None:
    """Inputs are settled; else the loader waits before the grid, or as a task does."""
    plan = plan_of(routed(computed, ragged))
    (s,) = (s for s in plan.streams if s.call == "go")
    assert s.kind is ROWS and s.wait_events == after
    assert bool(plan.call("go").header) is ragged


def test_an_index_that_each_tile_waits_for_is_not_known_ahead() -> None:
    p = et.Program("each")
    x, w = p.input("x", (4, 64), et.bf16), p.weight("w", (8, 16, 64), et.bf16)
    given, y = p.input("given", (8,), et.i32, bound=(0, 7)), p.output("y", (8, 4, 16), et.f32)
    at = p.scratch("at", (8,), et.i32, bound=(0, 7))
    p.call(copy, name="plan", grid=(8,), reads=lambda i: given[i], writes=lambda i: at[i])
    p.call(product, name="go", grid=(8,), reads=lambda i: (x[:, :], w[at[i], :, :]),
           writes=lambda i: y[i, :, :])
    assert ("go", "w") not in kinds(plan_of(p))


def test_what_the_loader_waits_for_keeps_its_cell() -> None:
    """One task makes what the one after it on the same worker needs, but the loader looks too."""
    plan = plan_of(single())
    assert [(h.kind.value, h.reason) for h in plan.handoffs] == [
        ("counter", "the producer warp waits for it as well")
    ]
    (without,) = plan_of(single(), stream=False).handoffs
    assert without.kind.value == "same_worker"


def test_in_debug_run_time_places_are_checked_before_anything_is_read_there() -> None:
    for debug in (False, True):
        (s,) = (s for s in plan_of(routed(True, True), debug=debug).streams if s.call == "go")
        assert s.is_streamed is not debug


def test_explain_says_what_is_streamed_and_why() -> None:
    text = et.explain(linear(), target="cuda")
    assert "streams w[i*32:i*32 + 32, 0:512] as rows by gemm_skinny: no event guards it" in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stream_begins_and_steps_at_multiples_of_16_bytes(name: str) -> None:
    """What a plan says of a layout is true at the dims that are launched, wherever data says."""
    make, launches = PROGRAMS[name]
    plan = plan_of(make())
    assert plan.streams

    def most(tensor: str, index: tuple[int, ...]) -> int:
        return plan.program.tensor(tensor).bound[1].value

    for s in plan.streams:
        p = plan.program.placed(s.call)
        tensor = plan.program.tensor(p.call.regions[s.arg].tensor)
        layout = layout_of(p.call.regions[s.arg], tensor)
        assert layout is not None
        for dims in launches:
            shape = [evaluate(n, dims) for n in tensor.shape]
            for coords in _corners(p, dims):
                env = {**dims, **coords}
                first, row, rows, stride = (
                    evaluate(e, env, most) * tensor.dtype.size for e in (
                        layout.offset, layout.row, layout.rows, layout.stride))
                assert first % 16 == 0 and row % 16 == 0
                last = first + (rows // tensor.dtype.size - 1) * stride + row
                assert first >= 0 and last <= np.prod(shape) * tensor.dtype.size


def _corners(p, dims):
    """The first and the last task of a grid whose extents are numbers or dims."""
    sizes = {a.var: evaluate(a.extent, dims) for a in p.axes}
    yield dict.fromkeys(sizes, 0)
    yield {v: n - 1 for v, n in sizes.items()}


@pytest.mark.parametrize("expr, wanted", [
    (Const(48), 48), (Var("i") * 16 + 32, 16), (Dim("n", 1, None) * Var("i") * 4, 4),
    (minimum(Var("i") * 8, 12), 4), (mod(Var("i") * 6, 4), 2), (floordiv(Var("i") * 32, 4), 8),
    (floordiv(Var("i"), 4) * 5, 5),
])
def test_a_divisor_divides_every_value(expr, wanted: int) -> None:
    assert divisor(expr) == wanted
    for i in range(20):
        assert evaluate(expr, {"i": i, "n": 7}) % wanted == 0


def test_a_product_that_is_used_twice_or_in_a_loop_is_not_streamed() -> None:
    body = plan_of(linear()).program.call("go").body
    assert product_of(body, 1) is not None
    again = replace(body, stmts=(*body.stmts, replace(body.stmts[-1], value=body.stmts[1].id)))
    assert product_of(again, 1) is None
