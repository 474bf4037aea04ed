"""The builder: declarations, calls, loops, events and facts, and every error they raise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eventtensor as et
from eventtensor import errors
from eventtensor.ir.expr import Const, Load, Prod, Var
from eventtensor.ir.program import GridAxis, Loop
from eventtensor.ir.tensor import Point, Region, Role, Slice


@et.task
def copy(x, out):
    out[:] = x


@et.task
def fill(out):
    out[:] = 0.0


@et.task
def add_into(x, acc):
    acc[:] += x


@et.task
def row_total(x, out):
    out[:] = x.sum(axis=1)


def simple() -> tuple[et.Program, object, object]:
    p = et.Program("p")
    n = et.dim("n", max=64)
    return p, p.input("a", (n, 8), et.f32), p.output("b", (n, 8), et.f32)


def row_sum() -> et.Program:
    n = et.dim("n", max=4096)
    p = et.Program("row_sum")
    a = p.input("a", (n, 128), et.f32)
    b = p.scratch("b", (n, 4), et.f32)
    c = p.output("c", (n,), et.f32)
    p.call(row_total, grid=(n.tiles(32), 4),
           reads=lambda i, j: a[i * 32 : i * 32 + 32, j * 32 : j * 32 + 32],
           writes=lambda i, j: b[i * 32 : i * 32 + 32, j])
    p.call(row_total, grid=(n.tiles(32),), reads=lambda i: b[i * 32 : i * 32 + 32, :],
           writes=lambda i: c[i * 32 : i * 32 + 32])
    return p


def test_row_sum_builds_the_calls_as_written():
    program = row_sum().build()
    first, second = (placed.call for placed in program.calls)
    i, j = Var("i"), Var("j")
    assert first.reads == (Region("a", (Slice(i * 32, i * 32 + 32), Slice(j * 32, j * 32 + 32))),)
    assert first.writes == (Region("b", (Slice(i * 32, i * 32 + 32), Point(j))),)
    assert [a.var for a in first.grid] == ["i", "j"]
    assert first.waits is None and first.notifies is None
    assert second.reads[0].axes[1] == Slice(Const(0), Const(4))
    assert program.dims[0].max == 4096


def test_calls_are_named_after_their_kind_and_made_unique():
    names = [placed.call.name for placed in row_sum().build().calls]
    assert names == ["row_total", "row_total_2"]


def test_a_call_knows_its_place_in_the_users_file():
    call = row_sum().build().calls[0].call
    assert call.place.startswith("test_lang_program.py:")


def test_roles_shapes_and_facts_of_tensors():
    n = et.dim("n")
    p = et.Program("p")
    p.weight("w", [4, n], et.bf16)
    p.state("s", (), et.f32)
    p.scratch("t", (n, 4), et.i32, bound=n - 1, monotone=True, distinct=True)
    p.input("u", (n, 4), et.i64, bound=(-1, 7), distinct=(1,))
    w, s, t, u = p.build().tensors
    assert (w.role, s.role) == (Role.weight, Role.state)
    assert t.bound == (Const(0), n - 1) and t.monotone and t.distinct == (0, 1)
    assert u.bound == (Const(-1), Const(7)) and not u.monotone and u.distinct == (1,)


@pytest.mark.parametrize("declare", [
    lambda p, n: p.input("t", n, et.f32),
    lambda p, n: p.input("t", (n, 0), et.f32),
    lambda p, n: p.input("t", (n, 1.5), et.f32),
    lambda p, n: p.input("t", (n,), "f32"),
    lambda p, n: p.input("t", (n,), et.f32, bound=4),
    lambda p, n: p.input("t", (n,), et.f32, monotone=True),
    lambda p, n: p.input("t", (), et.i32, monotone=True),
    lambda p, n: p.input("t", (n,), et.i32, bound=(4, 3)),
    lambda p, n: p.input("t", (n,), et.i32, bound=(1, 2, 3)),
    lambda p, n: p.input("t", (n,), et.i32, bound=1.5),
    lambda p, n: p.input("t", (n,), et.i32, distinct=(1,)),
    lambda p, n: p.input("t", (n,), et.i32, limit=4),
    lambda p, n: p.input("t", (Var("i"),), et.i32),
])
def test_bad_tensors_are_refused(declare: Callable[..., object]):
    with pytest.raises(errors.BadTensor):
        declare(et.Program("p"), et.dim("n"))


@pytest.mark.parametrize("act", [
    lambda p: et.Program("not a name"),
    lambda p: p.scratch("a", (4,), et.f32),
    lambda p: p.scratch("for", (4,), et.f32),
    lambda p: p.scratch("n", (4,), et.f32),
    lambda p: p.events("b", (4,)),
    lambda p: p.scratch("x", (et.dim("a"),), et.f32),
    lambda p: p.scratch("x", (et.dim("c0"),), et.f32),
    lambda p: p.call(fill, grid=(4,), writes=lambda a: p.scratch("z", (4,), et.f32)[a]),
    lambda p: p.call(fill, grid=(4,), writes=lambda n: p.scratch("z", (4,), et.f32)[n]),
    lambda p: p.call(fill, grid=(4,), writes=lambda c3: p.scratch("z", (4,), et.f32)[c3]),
])
def test_taken_reserved_and_impossible_names_are_refused(act: Callable[..., object]):
    p, _, _ = simple()
    with pytest.raises(errors.BadName):
        act(p)


def test_explicit_call_names_must_be_free():
    p, a, b = simple()
    p.call(copy, grid=(1,), reads=a, writes=b, name="mine")
    with pytest.raises(errors.BadName):
        p.call(copy, grid=(1,), reads=a, writes=b, name="mine")


def test_a_dim_may_not_take_the_name_of_an_earlier_coordinate():
    p, a, b = simple()
    p.call(copy, grid=(4,), reads=lambda m: a[m, :], writes=lambda m: b[m, :])
    with pytest.raises(errors.BadName):
        p.scratch("s", (et.dim("m"),), et.f32)


def test_a_dim_has_one_range_in_a_program():
    p, _, _ = simple()
    with pytest.raises(errors.BadDim):
        p.scratch("s", (et.dim("n", max=65),), et.f32)


# ---- grids and lambdas ---------------------------------------------------------------------


def test_grids_take_lambdas_of_earlier_coordinates_and_run_time_extents():
    p = et.Program("p")
    tiles = p.input("tiles", (8,), et.i32, bound=4)
    out = p.output("out", (8, 8, 4), et.f32)
    p.call(fill, grid=(8, lambda i: i + 1, lambda i: tiles[i]), writes=lambda i, j, k: out[i, j, k])
    grid = p.build().calls[0].call.grid
    assert grid[1] == GridAxis("j", Var("i") + 1)
    assert grid[2] == GridAxis("k", Load("tiles", (Var("i"),)))


def test_coordinates_without_lambdas_are_i0_i1():
    p, a, b = simple()
    p.call(copy, grid=(1, 1), reads=a, writes=b)
    assert p.build().calls[0].call.coords == ("i0", "i1")


def test_a_grid_lambda_names_coordinates_when_no_region_does():
    p, a, b = simple()
    p.call(copy, grid=(1, lambda e: e + 1), reads=a, writes=b)
    assert p.build().calls[0].call.coords == ("e", "i1")


def test_a_bare_extent_is_a_grid_of_one_axis():
    p, a, b = simple()
    p.call(copy, grid=4, reads=lambda i: a[i, :], writes=lambda i: b[i, :])
    assert len(p.build().calls[0].call.grid) == 1


def test_lambda_defaults_are_captured_values():
    p, a, b = simple()
    for k in range(2):
        p.call(copy, grid=(4,), reads=lambda i, k=k: a[i, k], writes=lambda i, k=k: b[i, k])
    assert p.build().calls[1].call.reads[0].axes[1] == Point(Const(1))


@pytest.mark.parametrize("grid", [("x",), (0,), (1.5,), None, (lambda j: j, 4), (True,)])
def test_bad_grids_are_refused(grid: object):
    p, a, b = simple()
    with pytest.raises(errors.BadGrid):
        p.call(copy, grid=grid, reads=a, writes=b)


def test_products_are_refused_in_shapes_grids_and_indices_and_allowed_in_counts():
    n, m = et.dim("n"), et.dim("m")
    p = et.Program("p")
    with pytest.raises(errors.NonAffine):
        p.input("a", (n * m, 8), et.f32)
    b = p.output("b", (n, m), et.f32)
    with pytest.raises(errors.NonAffine):
        p.call(fill, grid=(n * m,), writes=lambda i: b[i, 0])
    with pytest.raises(errors.NonAffine):
        p.call(fill, grid=(n, m), writes=lambda i, j: b[i * j, 0])
    event = p.events("E", (n,), count=n * m)
    assert isinstance(event.event.count, Prod)


@pytest.mark.parametrize("arguments", [
    lambda a, b: {"reads": lambda i: a[i, :], "writes": lambda j: b[j, :]},
    lambda a, b: {"reads": lambda i, j: a[i, :], "writes": lambda i, j: b[i, :]},
    lambda a, b: {"reads": lambda *i: a[0, :], "writes": lambda i: b[i, :]},
    lambda a, b: {"reads": lambda i: None, "writes": lambda i: b[i, :]},
    lambda a, b: {"reads": lambda i: 3, "writes": lambda i: b[i, :]},
    lambda a, b: {"reads": lambda i: a[i, :], "writes": ()},
    lambda a, b: {"reads": lambda i: a[i, :], "writes": lambda i: b[i, :], "unordered": True},
    lambda a, b: {"reads": lambda i: a[i, :], "writes": lambda i: b[i, :], "wait": ()},
    lambda a, b: {"reads": lambda i: a[i, Var("z")], "writes": lambda i: b[i, :]},
])
def test_bad_calls_are_refused(arguments: Callable[..., dict[str, object]]):
    p, a, b = simple()
    with pytest.raises(errors.BadCall):
        p.call(copy, grid=(4,), **arguments(a, b))


def test_a_plain_function_is_not_a_task_kind():
    p, a, b = simple()
    with pytest.raises(errors.BadCall, match="not a task kind"):
        p.call(lambda x, out: None, grid=(1,), reads=a, writes=b)


def test_tensors_and_events_of_another_program_are_refused():
    p, a, _ = simple()
    q, _, b2 = simple()
    index = q.input("index", (4,), et.i32, bound=3)
    event = q.events("E", (4,))
    for arguments in (
        {"reads": a, "writes": b2},
        {"reads": lambda i: a[index[i], :], "writes": lambda i: p.scratch("s", (8,), et.f32)},
        {"reads": lambda i: a[index[i] * 2, :], "writes": lambda i: p.scratch("t", (8,), et.f32)},
        {"reads": a, "writes": p.scratch("u", a.shape, et.f32), "waits": event},
    ):
        with pytest.raises(errors.BadCall, match="another program"):
            p.call(copy, grid=(4,), **arguments)
    with pytest.raises(errors.BadCall, match="another program"):
        p.call(copy, grid=(4, lambda i: index[i]), reads=a, writes=p.scratch("v", a.shape, et.f32))


# ---- roles ---------------------------------------------------------------------------------


def test_input_and_weight_are_never_written():
    p, a, b = simple()
    w = p.weight("w", (4, 8), et.f32)
    with pytest.raises(errors.BadRole):
        p.call(copy, grid=(1,), reads=b, writes=a)
    with pytest.raises(errors.BadRole):
        p.call(add_into, grid=(1,), reads=w, accumulates=w)


def test_accumulation_into_bool_is_refused():
    p = et.Program("p")
    flags = p.output("flags", (4,), et.bool_)
    with pytest.raises(errors.BadRole):
        p.call(add_into, grid=(4,), reads=lambda i: flags[i], accumulates=lambda i: flags[i])


def test_ordered_accumulation_over_run_time_regions_needs_unordered():
    p = et.Program("p")
    topk = p.input("topk", (16, 2), et.i32, bound=7)
    x = p.input("x", (16, 4), et.f32)
    y = p.output("y", (8, 4), et.f32)
    regions = {"reads": lambda i: x[i, :], "accumulates": lambda i: y[topk[i, 0], :]}
    with pytest.raises(errors.OrderedDataAccumulate):
        p.call(add_into, grid=(16,), **regions)
    p.call(add_into, grid=(16,), **regions, unordered=True)
    assert p.build().calls[0].call.unordered


# ---- loops ---------------------------------------------------------------------------------


def test_loops_nest_and_their_variables_index_and_bound():
    p = et.Program("p")
    x = p.output("x", (4, 4, 8), et.f32)
    with p.loop("l", 4) as outer, p.loop("m", outer + 1) as inner:
        p.call(fill, grid=(8,), writes=lambda i: x[outer, inner, i])
    (loop,) = p.build().body
    assert isinstance(loop, Loop) and isinstance(loop.body[0], Loop)
    assert loop.body[0].extent == Var("l") + 1
    assert p.build().calls[0].vars == ("l", "m", "i")


@pytest.mark.parametrize("extent", [0, 1.5, "n"])
def test_bad_loop_extents_are_refused(extent: object):
    p, _, _ = simple()
    with pytest.raises(errors.BadGrid), p.loop("l", extent):
        pass


def test_loop_misuse_is_refused():
    p, a, b = simple()
    counts = p.input("counts", (4,), et.i32, bound=4)
    with pytest.raises(errors.BadGrid, match="run-time data"), p.loop("l", counts[0]):
        pass
    with pytest.raises(errors.BadGrid, match="no calls"), p.loop("m", 4) as var:
        pass
    with pytest.raises(errors.BadCall, match="no coordinate"):
        p.call(copy, grid=(4,), reads=lambda i: a[var, :], writes=lambda i: b[i, :])
    with p.loop("k", 2):
        with pytest.raises(errors.BadGrid, match="inside loop"):
            p.build()
        p.call(copy, grid=(1,), reads=a, writes=b)
    with pytest.raises(errors.BadName), p.loop("k", 2):
        pass


def test_a_coordinate_may_have_the_name_of_a_loop_that_is_closed():
    p = et.Program("p")
    a = p.input("a", (4, 8), et.f32)
    b, c = (p.output(name, (4, 8), et.f32) for name in "bc")
    p.call(copy, name="before", grid=(4,), reads=lambda k: a[k, :], writes=lambda k: c[k, :])
    with p.loop("k", 2):
        p.call(add_into, grid=(4,), reads=lambda i: a[i, :], accumulates=lambda i: c[i, :])
        with pytest.raises(errors.BadName, match="has the name of a loop"):
            p.call(copy, grid=(2,), reads=lambda k: a[k, :], writes=lambda k: b[k, :])
    p.call(copy, name="after", grid=(4,), reads=lambda k: c[k, :], writes=lambda k: b[k, :])
    assert et.parse(str(p)) == p.build() and p.build().calls[2].vars == ("k",)
    x, given = np.zeros((4, 8), np.float32), np.arange(32, dtype=np.float32).reshape(4, 8)
    for target, schedule in (("interp", "auto"), ("cpu", "static"), ("cpu", "push")):
        kernel = et.compile(p, target=target, schedule=schedule)
        kernel(a=given, b=x, c=np.zeros((4, 8), np.float32))
        kernel.close()
        np.testing.assert_array_equal(x, given * 3)


def test_an_error_inside_a_loop_leaves_the_program_usable():
    p, a, b = simple()
    with pytest.raises(errors.BadCall), p.loop("l", 4):
        p.call(copy, grid=(1,), reads=a)
    p.call(copy, grid=(1,), reads=a, writes=b)
    assert len(p.build().body) == 1


def test_task_options_are_checked():
    made = et.task(cpp="x;", name="other")(lambda out: None)
    assert made.name == "other" and made.cpp_body == et.CppBody("x;")
    for bad in (lambda: et.task(opencl="x"), lambda: et.task(cpp=" "), lambda: et.task(3),
                lambda: et.task(lambda out: None)):
        with pytest.raises(errors.BadCall):
            bad()
