"""Regions, value semantics, accumulation, conversions and hand-tuned bodies in C++, bit for bit
against plain evaluation."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.errors import OutOfRange
from eventtensor.ir import tile as t
from eventtensor.ir.expr import Const, load
from eventtensor.ir.plan import CallPlan, Plan, Policy, Schedule, ScheduleKind
from eventtensor.ir.program import Call, Program
from eventtensor.ir.tensor import Point, Region, Role, Slice, Tensor
from eventtensor.runtime.cpu_kernel import CpuKernel


def run(lab, program: et.Program, dims, arrays, workers: int = 2, debug: bool = False) -> None:
    """Launch on C++ and compare every array with plain evaluation."""
    plan = lab.plan(program)
    expected = lab.reference(plan, dims, arrays)
    kernel = CpuKernel(plan, Options(workers=workers, debug=debug))
    kernel.launch(dims, arrays)
    kernel.close()
    lab.assert_same(arrays, expected)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@et.task
def blur(x, out):
    n = out.shape[0]
    out[:] = x[0:n] + x[1 : n + 1] * 2.0 + x[2 : n + 2]


@pytest.mark.parametrize("debug", (False, True))
def test_padded_halos_hold_their_value(lab, debug: bool) -> None:
    n = et.dim("n", max=1000)
    p = et.Program("halo")
    a, c = p.input("a", (n,), et.f32), p.output("c", (n,), et.f32)
    p.call(blur, grid=(n,), reads=lambda i: a.padded(1, 1, -3.5)[i - 1 : i + 2],
           writes=lambda i: c[i : i + 1])
    run(lab, p, {"n": 9}, {"a": floats(9), "c": np.zeros(9, np.float32)}, debug=debug)


@et.task
def two_products(x, a, b, out):
    both = et.zeros((2, 3))
    for k in et.range(2):
        both[:] = both + x[:, k * 2 : k * 2 + 2] @ (a + b)[k * 2 : k * 2 + 2]
    out[:] = et.concat([x @ a, x @ b, both], axis=1)


def test_rows_that_several_products_take_are_copied_once(lab) -> None:
    p = et.Program("products")
    at = p.input("at", (2,), et.i32, bound=5)
    x, out = p.input("x", (6, 4), et.f32), p.output("out", (2, 9), et.f32)
    a, b = p.input("a", (4, 3), et.f32), p.input("b", (4, 3), et.f32)
    p.call(two_products, grid=(), reads=lambda: (x[at[0:2], :], a[:, :], b[:, :]),
           writes=lambda: out[:, :])
    run(lab, p, {}, {"at": np.array([4, 1], np.int32), "x": floats(6, 4), "a": floats(4, 3, seed=1),
                     "b": floats(4, 3, seed=2), "out": np.zeros((2, 9), np.float32)})


@et.task
def copy(x, out):
    out[:] = x * 1.0


@pytest.mark.parametrize("debug", (False, True))
def test_rows_gather_and_scatter(lab, debug: bool) -> None:
    n = et.dim("n", max=100)
    p = et.Program("rows")
    pos = p.input("pos", (n, 3), et.i32, bound=(0, n * 3 - 1), distinct=(0, 1))
    x, y = p.input("x", (n, 4), et.f32), p.scratch("y", (n * 3, 4), et.f32)
    z = p.output("z", (n, 3, 4), et.f32)

    @et.task
    def scatter(row, out):
        out[:] = et.concat([row.reshape(1, 4), row.reshape(1, 4) * 2.0, row.reshape(1, 4) - 1.0])

    p.call(scatter, grid=(n,), reads=lambda i: x[i, :], writes=lambda i: y[pos[i, :], :])
    p.call(copy, grid=(n,), reads=lambda i: y[pos[i, :], :], writes=lambda i: z[i, :, :])
    pos_data = np.random.default_rng(1).permutation(21).reshape(7, 3).astype(np.int32)
    arrays = {"pos": pos_data, "x": floats(7, 4), "z": np.zeros((7, 3, 4), np.float32)}
    run(lab, p, {"n": 7}, arrays, debug=debug)


@et.task
def reverse(x, out):
    n = 8
    for k in range(n):
        out[k] = x[n - 1 - k]


def test_a_task_reads_what_it_overwrites_as_it_was(lab) -> None:
    p = et.Program("flip")
    s = p.state("s", (4, 8), et.f32)
    p.call(reverse, grid=(4,), reads=lambda i: s[i, :], writes=lambda i: s[i, :])
    run(lab, p, {}, {"s": floats(4, 8)})


@et.task
def add_into(x, acc):
    acc[:] += x


@et.task
def add_twice(x, acc):
    acc[:] += x
    acc[:] += x * 0.0078125


@pytest.mark.parametrize("kind", (et.f32, et.bf16, et.i32))
def test_ordered_accumulation_is_repeatable(lab, kind) -> None:
    p = et.Program(f"total_{kind}")
    x = p.input("x", (9, 8), et.i32 if kind is et.i32 else et.f32)
    out = p.output("out", (8,), kind)
    body = add_into if kind is not et.bf16 else add_twice
    p.call(body, grid=(9,), reads=lambda i: x[i, :], accumulates=lambda i: out[:])
    data = floats(9, 8) * 100
    arrays = {"x": data.astype(np.int32) if kind is et.i32 else data,
              "out": np.ones(8, kind.numpy)}
    run(lab, p, {}, arrays, workers=3)


def test_unordered_accumulation_loses_nothing(lab) -> None:
    p = et.Program("histogram")
    x, out = p.input("x", (500, 4), et.f32), p.output("out", (4,), et.f32)
    p.call(add_into, grid=(500,), reads=lambda i: x[i, :], accumulates=lambda i: out[:],
           unordered=True)
    data = np.random.default_rng(0).integers(0, 50, (500, 4)).astype(np.float32)
    for _ in range(5):
        run(lab, p, {}, {"x": data, "out": np.zeros(4, np.float32)}, workers=8)


@et.task
def count_rows(x, acc):
    acc[...] += et.full((x.shape[0],), 1, et.i32).sum()


def test_unordered_accumulation_beside_the_data_that_the_body_loads_loses_nothing() -> None:
    """The extent of x is an element of the tensor to which all tasks add."""
    p, n = et.Program("beside"), et.dim("n", max=4000)
    x, s = p.input("x", (8,), et.i32), p.state("s", (n, 2), et.i32, bound=(0, 40000))
    p.fact(lambda i: s[i, 0] <= 8, over=(n,))
    p.call(count_rows, grid=(n,), reads=lambda i: x[0 : s[i, 0]],
           accumulates=lambda i: s[0, 1], unordered=True)
    kernel = et.compile(p, workers=4, schedule="static")
    assert kernel.report.ok and "et::accumulate_atomic(acc.data" in kernel.source
    given = np.zeros(8, np.int32)
    for _ in range(20):
        counts = np.tile(np.array([[3, 0]], np.int32), (2000, 1))
        kernel(x=given, s=counts)
        assert counts[0, 1] == 6000 and (counts[:, 0] == 3).all()
    kernel.close()


@et.task
def convert(x, half, brain, back):
    half[:] = x
    brain[:] = x
    back[:] = x.cast(et.f16) + x.cast(et.bf16)


def test_half_formats_round_like_numpy_everywhere(lab) -> None:
    """All f16 values, the midpoints between them, their neighbours, and random bit patterns."""
    with np.errstate(all="ignore"):
        halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.sort(halves[np.isfinite(halves)])
    middle = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    middle = middle.astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 2**32, 100000, dtype=np.uint32)
    values = np.concatenate([
        halves, middle, np.nextafter(middle, np.float32(np.inf)),
        np.nextafter(middle, np.float32(-np.inf)), bits.view(np.float32),
    ]).astype(np.float32)
    values = np.where(np.isnan(values), np.float32(np.nan), values)
    n = et.dim("n", max=10**6)
    p = et.Program("convert")
    x = p.input("x", (n,), et.f32)
    outs = [p.output(k, (n,), d) for k, d in (("a", et.f16), ("b", et.bf16), ("c", et.f32))]
    p.call(convert, grid=(n.tiles(4096),), reads=lambda i: x[i * 4096 : i * 4096 + 4096],
           writes=lambda i: tuple(o[i * 4096 : i * 4096 + 4096] for o in outs))
    arrays = {"x": values, "a": np.zeros(len(values), np.float16),
              "b": np.zeros(len(values), et.bf16.numpy), "c": np.zeros(len(values), np.float32)}
    kernel = CpuKernel(lab.plan(p), Options(workers=2))
    kernel.launch({"n": len(values)}, arrays)
    kernel.close()
    with np.errstate(all="ignore"):
        half, brain = values.astype(np.float16), values.astype(et.bf16.numpy)
        both = half.astype(np.float32) + brain.astype(np.float32)
    np.testing.assert_array_equal(arrays["a"], half)
    np.testing.assert_array_equal(arrays["b"].astype(np.float32), brain.astype(np.float32))
    np.testing.assert_array_equal(arrays["c"], both)
    whole = ~np.isnan(values)
    np.testing.assert_array_equal(arrays["a"][whole].view(np.uint16), half[whole].view(np.uint16))


HAND = """
for (int64_t r = 0; r < x.extent[0]; ++r)
  for (int64_t c = 0; c < x.extent[1]; ++c)
    out.data[r * out.stride[0] + c * out.stride[1]] =
        et::value(x.data[r * x.stride[0] + c * x.stride[1]]) * 2.0f + float(i) + float(n);
"""


@et.task(cpp=HAND)
def hand(x, out, *, i, n):
    out[:] = x * 2.0 + i.cast(et.f32) + n.cast(et.f32)


def test_a_hand_tuned_body_means_the_python_one(lab) -> None:
    n = et.dim("n", max=1000)
    p = et.Program("tuned")
    x, out = p.input("x", (n, 6), et.bf16), p.output("out", (n, 6), et.f32)
    p.call(hand, grid=(n.tiles(4),), reads=lambda i: x[i * 4 : i * 4 + 4, :],
           writes=lambda i: out[i * 4 : i * 4 + 4, :])
    plan = lab.plan(p)
    assert "hand_hand(" in CpuKernel(plan, Options(workers=1)).source
    run(lab, p, {"n": 33}, {"x": floats(33, 6).astype(et.bf16.numpy),
                            "out": np.zeros((33, 6), np.float32)})


def test_names_of_cpp_are_legal_names_of_a_program(lab) -> None:
    n = et.dim("int64_t", max=100)
    p = et.Program("double")
    a, out = p.input("float", (n, 3), et.f32), p.output("new_", (n, 3), et.f32)

    @et.task
    def auto(worker, args):
        args[:] = worker + 1.0

    p.call(auto, name="switch", grid=(n, 3), reads=lambda t0, this: a[t0, this],
           writes=lambda t0, this: out[t0, this])
    run(lab, p, {"int64_t": 5}, {"float": floats(5, 3), "new_": np.zeros((5, 3), np.float32)})


def test_an_index_loaded_from_a_written_tensor_is_the_old_one(lab) -> None:
    """s[1] = 7; s[0] = s[1]: loads see the start of the task, wherever they stand."""
    one = t.TileType(et.i32, ())
    whole = t.TileType(et.i32, (Const(4),))
    body = t.Body(
        (t.BodyArg("out", t.ArgMode.write, whole, et.i32),),
        (
            t.Let(0, t.Literal(7), one),
            t.Store(0, (Point(Const(1)),), 0),
            t.Let(1, t.Index(load("s", (Const(1),))), one),
            t.Store(0, (Point(Const(0)),), 1),
        ),
    )
    region = Region("s", (Slice(Const(0), Const(4)),))
    call = Call("shift", "shift", (), (), (), (region,), body)
    state = Tensor("s", Role.state, (Const(4),), et.i32)
    program = Program("staged", (state,), (), (), (call,))
    how = Schedule(ScheduleKind.static, Policy.round_robin, "test", Const(0))
    plan = Plan(program, (), (CallPlan("shift", (), (), (), how),), (), (), Const(0))
    arrays = {"s": np.array([1, 2, 3, 4], np.int32)}
    kernel = CpuKernel(plan, Options(workers=1))
    kernel.launch({}, arrays)
    kernel.close()
    assert arrays["s"].tolist() == [2, 7, 3, 4]


@et.task
def window_of(x, c, out):
    out[0] = x[c[0] : c[0] + 4].sum(axis=0)
    out[1] = et.concat([x[c[0] : c[0] + 4], x], axis=0).sum(axis=0)


@pytest.mark.parametrize("at", range(-5, 8))
def test_a_slice_at_a_computed_place_stays_inside_its_tile(at: int) -> None:
    """What lies beside the tile is not read: the rows before and after it are infinite."""
    n = et.dim("n", min=1, max=5)
    p = et.Program("window")
    x, c = p.input("x", (3, n), et.f32), p.input("c", (1,), et.i32)
    out = p.output("out", (2,), et.f32)
    p.call(window_of, grid=(), reads=lambda: (x[1, :], c[:]), writes=lambda: out[:])
    found = np.zeros(2, np.float32)
    for size in (1, 2, 5):
        rows = np.full((3, size), np.inf, np.float32)
        rows[1] = np.arange(1, size + 1)
        et.compile(p, target="cpu", workers=1)(x=rows, c=np.array([at], np.int32), out=found)
        first = min(max(at, 0), size)
        part = rows[1, first : first + 4].sum()
        assert found.tolist() == [part, part + rows[1].sum()]
        reference = et.compile(p, target="interp")
        if first == at:
            reference(x=rows, c=np.array([at], np.int32), out=found)
            assert found.tolist() == [part, part + rows[1].sum()]
        else:
            with pytest.raises(OutOfRange):
                reference(x=rows, c=np.array([at], np.int32), out=found)
