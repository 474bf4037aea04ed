"""Regions of every shape, memory, the debug obligations and bad inputs, on programs whose tasks
need no events."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import (
    BoundViolated,
    DimOutOfRange,
    DimUnknown,
    EventTensorError,
    FactViolated,
    MissingArgument,
    NotAnArray,
    NotWritten,
    OutOfRange,
    ReadOnlyOutput,
    UninitialisedRead,
    UnknownArgument,
    WrongDType,
    WrongShape,
)
from eventtensor.interp import Order, RaceKind, run, run_reference
from eventtensor.ir.expr import Const
from eventtensor.ir.plan import CallPlan, Plan, Policy, Schedule, ScheduleKind
from eventtensor.ir.program import Program

STATIC = Schedule(ScheduleKind.static, Policy.round_robin, "test", Const(0))


def plain_plan(program: Program) -> Plan:
    """No events at all."""
    calls = tuple(CallPlan(c.call.name, (), (), (), STATIC) for c in program.calls)
    return Plan(program, (), calls, (), (), Const(0))


@et.task
def copy(x: Any, out: Any) -> None:
    out[:] = x


# ---- regions -------------------------------------------------------------------------------


def test_a_halo_is_filled_with_the_padding_value_and_keeps_its_shape() -> None:
    @et.task
    def smooth(x: Any, out: Any) -> None:
        out[:] = x[0:4] + x[2:6]

    p = et.Program("halo")
    n = et.dim("n")
    x = p.input("x", (n,), et.f32)
    y = p.output("y", (n.tiles(4), 4), et.f32)
    p.call(smooth, grid=(n.tiles(4),), reads=lambda i: x.padded(1, 1, 7.0)[i * 4 - 1 : i * 4 + 5],
           writes=lambda i: y[i, :])
    data, out = np.arange(6, dtype=np.float32), np.zeros((2, 4), np.float32)
    assert run(plain_plan(p.build()), {"n": 6}, {"x": data, "y": out}).ok
    full = [7.0, *range(6), 7.0, 7.0, 7.0, 7.0]
    assert out.ravel().tolist() == [full[k] + full[k + 2] for k in range(8)]


def rows_program(unordered: bool = False) -> Program:
    p = et.Program("rows")
    index = p.input("index", (2, 3), et.i32, bound=(0, 9), distinct=(0, 1))
    x = p.input("x", (2, 3, 4), et.f32)
    y = p.output("y", (10, 4), et.f32)
    if unordered:
        p.call(add_rows, grid=(2,), reads=lambda i: x[i, :, :],
               accumulates=lambda i: y[index[i, :], :], unordered=True)
    else:
        p.call(copy, name="put", grid=(2,), reads=lambda i: x[i, :, :],
               writes=lambda i: y[index[i, :], :])
    return p.build()


@et.task
def add_rows(x: Any, acc: Any) -> None:
    acc[:] += x


def rows_arrays(index: list[list[int]]) -> dict[str, np.ndarray]:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return {"index": np.array(index, np.int32), "x": x, "y": np.full((10, 4), -1, np.float32)}


def test_gathered_rows_are_written_where_they_point_and_interleave_without_a_race() -> None:
    arrays = rows_arrays([[0, 4, 8], [6, 2, 9]])
    assert run(plain_plan(rows_program()), {}, arrays).ok
    for i in range(2):
        for k in range(3):
            row = arrays["y"][arrays["index"][i, k]]
            assert row.tolist() == arrays["x"][i, k].tolist()


def test_gathered_rows_that_meet_race_at_the_common_row() -> None:
    report = run(plain_plan(rows_program()), {}, rows_arrays([[0, 4, 8], [6, 4, 9]]))
    (race,) = report.races
    assert (race.kind, race.index) == (RaceKind.write_write, (4, 0))


def test_rows_named_twice_are_added_twice() -> None:
    arrays = rows_arrays([[5, 5, 1], [5, 2, 2]])
    assert run(plain_plan(rows_program(unordered=True)), {}, arrays).ok
    x, want = arrays["x"], np.zeros((10, 4), np.float32)
    for i in range(2):
        for k in range(3):
            want[arrays["index"][i, k]] += x[i, k]
    np.testing.assert_array_equal(arrays["y"], want)


def test_bf16_is_storage_only() -> None:
    p = et.Program("storage")
    x = p.input("x", (3,), et.bf16)
    y = p.output("y", (3,), et.bf16)
    z = p.output("z", (3,), et.u8)

    @et.task
    def both(a: Any, b: Any, c: Any) -> None:
        b[:] = a + 2.0**-8
        c[:] = (a * 100.0).cast(et.i32)

    p.call(both, grid=(1,), reads=lambda i: x[:], writes=lambda i: (y[:], z[:]))
    data = np.array([1.0, 0.5, 3.0], ml_dtypes.bfloat16)
    out = {"y": np.zeros(3, ml_dtypes.bfloat16), "z": np.zeros(3, np.uint8)}
    assert run(plain_plan(p.build()), {}, {"x": data, **out}).ok
    assert out["y"].astype(float).tolist() == [1.0, 0.5 + 2.0**-8, 3.0]
    assert out["z"].tolist() == [100, 50, 300 - 256]


n = et.dim("n")
BAD_REGIONS = {
    "point": (lambda x, i: x[i + 1], lambda y, i: y[i], r"f\(3\) uses x\[i \+ 1\]"),
    "above": (lambda x, i: x[i * 4 : i * 4 + 2], lambda y, i: y[0:2], r"f\(1\) uses .* 4:6 "),
    "below": (lambda x, i: x[i - 1 : i], lambda y, i: y[0:1], r"f\(0\) uses .* -1:0 "),
}


@pytest.mark.parametrize("name", sorted(BAD_REGIONS))
def test_a_region_out_of_range_is_an_error_that_names_task_and_tensor(name: str) -> None:
    read, write, message = BAD_REGIONS[name]
    p = et.Program("bad")
    x = p.input("x", (n,), et.f32)
    y = p.output("y", (n,), et.f32)
    p.call(copy, name="f", grid=(n,), reads=lambda i: read(x, i), writes=lambda i: write(y, i))
    arrays = {"x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32)}
    for go in (
        lambda: run(plain_plan(p.build()), {"n": 4}, arrays, order=Order.program),
        lambda: run_reference(p.build(), {"n": 4}, arrays),
    ):
        with pytest.raises(OutOfRange, match=message):
            go()


# ---- obligations ---------------------------------------------------------------------------


def indirect(**facts: Any) -> Program:
    """y[i] = x[ptr[i]], with facts about ptr."""
    p = et.Program("indirect")
    ptr = p.input("ptr", (4,), et.i32, **facts)
    x = p.input("x", (10,), et.f32)
    y = p.output("y", (4,), et.f32)
    p.fact(lambda i: ptr[i] <= ptr[i + 1] + 5, over=(3,))
    p.call(copy, name="f", grid=(4,), reads=lambda i: x[ptr[i]], writes=lambda i: y[i])
    return p.build()


def pointers(*values: int) -> dict[str, np.ndarray]:
    return {"ptr": np.array(values, np.int32), "x": np.arange(10, dtype=np.float32),
            "y": np.zeros(4, np.float32)}


BROKEN: list[tuple[dict[str, Any], tuple[int, ...], type[EventTensorError], str]] = [
    ({"bound": (0, 4)}, (0, 1, 2, 5), BoundViolated, r"ptr\[3\] = 5 is outside its bound 0\.\.4"),
    ({"bound": (0, 9), "monotone": True}, (0, 3, 2, 5), FactViolated, r"ptr\[1\] = 3 > ptr\[2\]"),
    ({"bound": (0, 9), "distinct": True}, (0, 3, 3, 5), FactViolated, "holds 3 twice"),
    ({"bound": (0, 9)}, (0, 9, 2, 5), FactViolated, r"is false at i = 1"),
]


@pytest.mark.parametrize(("facts", "values", "error", "message"), BROKEN)
def test_debug_checks_what_the_proof_took_as_true(
    facts: dict[str, Any], values: tuple[int, ...], error: type[EventTensorError], message: str
) -> None:
    program = indirect(**facts)
    run(plain_plan(program), {}, pointers(*values)).raise_if_bad()
    with pytest.raises(error, match=message):
        run(plain_plan(program), {}, pointers(*values), debug=True)
    with pytest.raises(error, match=message):
        run_reference(program, {}, pointers(*values), debug=True)
    good = indirect(bound=(0, 9), monotone=True, distinct=True)
    assert run(plain_plan(good), {}, pointers(0, 2, 3, 5), debug=True).ok


def test_facts_are_looked_at_again_after_the_data_has_changed() -> None:
    p = et.Program("twice")
    src = p.input("src", (2, 3), et.i32)
    ptr = p.scratch("ptr", (3,), et.i32, bound=(0, 9), monotone=True)
    x = p.input("x", (10,), et.f32)
    y = p.output("y", (2,), et.f32)
    with p.loop("l", 2) as loop:
        p.call(copy, name="set", grid=(1,), reads=lambda i: src[loop, :], writes=lambda i: ptr[:])
        p.call(copy, name="get", grid=(1,), reads=lambda i: x[ptr[0]], writes=lambda i: y[loop])
    arrays = {"src": np.array([[1, 2, 3], [3, 2, 1]], np.int32),
              "x": np.zeros(10, np.float32), "y": np.zeros(2, np.float32)}
    with pytest.raises(FactViolated, match=r"ptr\[0\] = 3 .* \(loaded by get\(1, 0\)\)"):
        run_reference(p.build(), {}, arrays, debug=True)


def test_debug_finds_an_element_that_a_task_declares_but_does_not_assign() -> None:
    @et.task
    def half(x: Any, out: Any) -> None:
        out[0:2] = x[0:2]

    p = et.Program("half")
    x = p.input("x", (4,), et.f32)
    y = p.output("y", (4,), et.f32)
    z = p.output("z", (4,), et.f32)
    p.call(half, grid=(1,), reads=lambda i: x[:], writes=lambda i: y[:])
    p.call(copy, name="after", grid=(1,), reads=lambda i: y[:], writes=lambda i: z[:])
    arrays = {"x": np.ones(4, np.float32), **{k: np.zeros(4, np.float32) for k in "yz"}}
    (early,) = run(plain_plan(p.build()), {}, arrays, order=Order.program).uninitialised
    assert arrays["y"].tolist() == [1, 1, 0, 0] and early.index == (2,)
    with pytest.raises(NotWritten, match=r"half\(0\) declares that it writes y\[2\]"):
        run(plain_plan(p.build()), {}, arrays, debug=True)


# ---- memory and grids -----------------------------------------------------------------------


def test_triangular_grids_follow_loops_and_earlier_coordinates() -> None:
    p = et.Program("triangle")
    x = p.input("x", (4, 4), et.f32)
    y = p.output("y", (4, 4, 4), et.f32)
    with p.loop("s", 3) as s:
        p.call(copy, name="f", grid=(4 - s, lambda i: i + 1), reads=lambda i, j: x[i, j],
               writes=lambda i, j: y[s, i, j])
    report = run(plain_plan(p.build()), {}, {"x": np.zeros((4, 4), np.float32),
                                             "y": np.zeros((4, 4, 4), np.float32)})
    want = [(s, i, j) for s in range(3) for i in range(4 - s) for j in range(i + 1)]
    assert sorted(t.coords for t in report.order) == want


def test_a_task_reads_before_it_writes_the_same_region() -> None:
    @et.task
    def shift(x: Any, out: Any) -> None:
        out[1:4] = x[0:3]
        out[0:1] = x[3:4]

    p = et.Program("shift")
    s = p.state("s", (4,), et.f32)
    p.call(shift, grid=(1,), reads=lambda i: s[:], writes=lambda i: s[:])
    x = np.arange(4, dtype=np.float32)
    assert run(plain_plan(p.build()), {}, {"s": x}).ok
    assert x.tolist() == [3, 0, 1, 2]


def test_two_tiles_that_write_one_element_race() -> None:
    p = et.Program("overlap")
    x = p.input("x", (9,), et.f32)
    y = p.output("y", (9,), et.f32)
    p.call(copy, name="f", grid=(2,), reads=lambda i: x[i * 4 : i * 4 + 5],
           writes=lambda i: y[i * 4 : i * 4 + 5])
    report = run(plain_plan(p.build()), {}, {"x": np.zeros(9, np.float32),
                                              "y": np.zeros(9, np.float32)})
    (race,) = report.races
    assert (race.kind, race.index) == (RaceKind.write_write, (4,))


def test_reading_what_nothing_wrote_is_reported_though_no_task_races() -> None:
    p = et.Program("holes")
    s = p.scratch("s", (4,), et.f32)
    y = p.output("y", (4,), et.f32)
    p.call(copy, name="f", grid=(1,), reads=lambda i: s[:], writes=lambda i: y[:])
    y_array = np.zeros(4, np.float32)
    report = run(plain_plan(p.build()), {}, {"y": y_array})
    assert np.isnan(y_array).all() and not report.races
    with pytest.raises(UninitialisedRead, match=r"f\(0\) reads s\[0\]"):
        report.raise_if_bad()
    with pytest.raises(UninitialisedRead, match=r"f\(0\) reads s\[0\]"):
        run_reference(p.build(), {}, {"y": y_array})


# ---- bad inputs ----------------------------------------------------------------------------


def frozen(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


BAD_ARRAYS: list[tuple[dict[str, Any], type[EventTensorError], str]] = [
    ({"x": None}, MissingArgument, "no array for input 'x'"),
    ({"w": np.zeros(1, np.float32)}, UnknownArgument, "'w' is not an argument"),
    ({"x": np.zeros(5, np.float64)}, WrongDType, "dtype float64, declared as f32"),
    ({"x": np.zeros(6, np.float32)}, WrongShape, r"shape \[6\], declared as \[5\]"),
    ({"x": [0.0] * 5}, NotAnArray, "is a list"),
    ({"y": frozen(np.zeros(5, np.float32))}, ReadOnlyOutput, "read-only"),
]


def five() -> Program:
    p = et.Program("five")
    m = et.dim("m", max=8)
    x = p.input("x", (m,), et.f32)
    y = p.output("y", (m,), et.f32)
    p.call(copy, name="f", grid=(1,), reads=lambda i: x[:], writes=lambda i: y[:])
    return p.build()


@pytest.mark.parametrize(("change", "error", "message"), BAD_ARRAYS)
def test_arrays_that_do_not_fit_are_an_error_before_anything_runs(
    change: dict[str, Any], error: type[EventTensorError], message: str
) -> None:
    arrays: dict[str, Any] = {"x": np.ones(5, np.float32), "y": np.zeros(5, np.float32), **change}
    given = {k: v for k, v in arrays.items() if v is not None}
    with pytest.raises(error, match=message):
        run(plain_plan(five()), {"m": 5}, given)


def test_dims_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(DimUnknown, match="no value for dim 'm'"):
        run_reference(five(), {}, {})
    with pytest.raises(DimOutOfRange, match=r"m = 9 is outside 1\.\.8"):
        run_reference(five(), {"m": 9}, {})
