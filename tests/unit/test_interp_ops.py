"""Bodies in the tile IR: every op reaches its meaning, loops carry, stores assign, errors name the
task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from eventtensor.errors import ExtentMismatch, OutOfRange
from eventtensor.interp.evaluate import Place, evaluate
from eventtensor.ir import tile as t
from eventtensor.ir.expr import Const, Node, Var, add
from eventtensor.ir.expr_functions import ExprFunctions
from eventtensor.ir.tensor import DType, Point, Slice

F, I32, I64, B = DType.f32, DType.i32, DType.i64, DType.bool_
KINDS = {"f": F, "i": I32, "b": B}


def dtype_of(x: np.ndarray) -> DType:
    return I64 if x.dtype == np.int64 else KINDS[x.dtype.kind]


def type_of(dtype: DType, shape: tuple[int, ...]) -> t.TileType:
    return t.TileType(dtype, tuple(Const(s) for s in shape))


def whole(shape: tuple[int, ...]) -> tuple[Slice, ...]:
    return tuple(Slice(Const(0), Const(s)) for s in shape)


def no_load(tensor: str, index: tuple[int, ...]) -> int:
    raise AssertionError(f"unexpected load of {tensor}{index}")


def evaluate_stmts(
    xs: list[np.ndarray],
    stmts: list[t.Stmt],
    out: int,
    kind: DType,
    shape: tuple[int, ...],
    env: dict[str, int] | None = None,
) -> np.ndarray:
    """Value `out` of statements in which values 0, 1, .. are the arguments xs."""
    args = [t.BodyArg(f"x{k}", "read", type_of(dtype_of(x), x.shape), dtype_of(x))
            for k, x in enumerate(xs)]
    args.append(t.BodyArg("out", "write", type_of(kind, shape), kind))
    lets: list[t.Stmt] = [t.Let(k, t.Arg(k), args[k].type) for k in range(len(xs))]
    store = t.Store(len(xs), whole(shape), out)
    body = t.Body(tuple(args), (*lets, *stmts, store))
    effects = evaluate(
        body,
        env or {},
        dict(enumerate(xs)),
        {len(xs): shape},
        no_load,
        Place("f(0)", "here:1"),
        ExprFunctions(),
    )
    assert effects.assigned[len(xs)].all()
    return effects.tiles[len(xs)]


def one(op: t.Op, *xs: Any, kind: DType = F, shape: tuple[int, ...] | None = None) -> np.ndarray:
    arrays = [np.asarray(x) for x in xs]
    shape = arrays[0].shape if shape is None else shape
    let = t.Let(len(arrays), op, type_of(kind, shape))
    return evaluate_stmts(arrays, [let], len(arrays), kind, shape)


def floats(*shape: int, seed: int = 0, low: float = -3, high: float = 3) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, seed: int = 0, kind: Any = np.int32) -> np.ndarray:
    found = np.random.default_rng(seed).integers(-20, 20, shape)
    return np.asarray(found, kind)


# ---- arithmetic ----------------------------------------------------------------------------

A, C = floats(3, 3, seed=1), floats(3, 3, seed=2)
EACH: list[tuple[t.Op, list[np.ndarray], np.ndarray]] = [
    (t.Unary("neg", 0), [A], -A),
    (t.Binary("sub", 0, 1), [A, C], A - C),
    (t.Binary("lt", 0, 1), [A, C], A < C),
    (t.Cast(0, I32), [A], np.trunc(A).astype(np.int32)),
    (t.Reduce("sum", 0, 0), [A], A[0] + A[1] + A[2]),
    (t.Reduce("max", 0, 1), [A], np.array([max(r) for r in A.tolist()], np.float32)),
    (t.Scan("sum", 0, 1), [A],
     np.stack([A[:, 0], A[:, 0] + A[:, 1], A[:, 0] + A[:, 1] + A[:, 2]], 1)),
    (t.MatMul(0, 1), [np.eye(3, dtype=np.float32), C], C),
]


@pytest.mark.parametrize(("op", "xs", "want"), EACH)
def test_an_op_reaches_its_operands_in_order(
    op: t.Op, xs: list[np.ndarray], want: np.ndarray
) -> None:
    """The sum of three has the lanes 0, 1 and 2, whose tree is (a0 + a2) + a1 up to rounding."""
    got = one(op, *xs, kind=dtype_of(want), shape=want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_literal_and_an_index_have_the_dtype_of_their_type() -> None:
    half = t.Let(0, t.Literal(0.5), type_of(F, ()))
    assert evaluate_stmts([], [half], 0, F, ()) == np.float32(0.5)
    index = t.Let(0, t.Index(add(Var("i"), Const(3))), type_of(I32, ()))
    got = evaluate_stmts([], [index], 0, I32, (), {"i": 4})
    assert got == 7 and got.dtype == np.int32


def test_where_picks_by_condition() -> None:
    cond, a, b = ints(30) > 0, floats(30, seed=1), floats(30, seed=2)
    want = [x if c else y for c, x, y in zip(cond, a, b, strict=True)]
    assert one(t.Where(0, 1, 2), cond, a, b).tolist() == [float(w) for w in want]


# ---- layout --------------------------------------------------------------------------------


def test_transpose_reshape_broadcast_and_concat_move_elements() -> None:
    x = floats(2, 3, 4)
    got = one(t.Transpose(0, (2, 0, 1)), x, shape=(4, 2, 3))
    assert got[3, 1, 2] == x[1, 2, 3]
    assert one(t.Reshape(0), x, shape=(6, 4)).ravel().tolist() == x.ravel().tolist()
    row = floats(1, 4)
    assert one(t.Broadcast(0), row, shape=(3, 5, 4))[2, 4].tolist() == row[0].tolist()
    a, b = floats(2, 3), floats(2, 2, seed=9)
    both = one(t.Concat((0, 1), 1), a, b, shape=(2, 5))
    assert both[1].tolist() == [*a[1].tolist(), *b[1].tolist()]


def test_iota_counts() -> None:
    let = t.Let(0, t.Iota(), t.TileType(I32, (Var("n"),)))
    assert evaluate_stmts([], [let], 0, I32, (5,), {"n": 5}).tolist() == [0, 1, 2, 3, 4]


def test_a_slice_is_clipped_at_the_upper_end() -> None:
    x = floats(10, 3)
    op = t.SliceOf(0, (Slice(Const(8), Const(12)), Point(Const(1))))
    assert one(op, x, shape=(2,)).tolist() == x[8:, 1].tolist()


def test_update_replaces_a_part_of_a_copy() -> None:
    x, v = floats(4, 4), floats(2, seed=3)
    op = t.Update(0, (Slice(Const(1), Const(3)), Point(Const(2))), 1)
    got = one(op, x, v)
    want = [list(r) for r in x.tolist()]
    want[1][2], want[2][2] = v.tolist()
    assert got.tolist() == want and x[1, 2] != v[0]


def test_gather_picks_entries_along_an_axis() -> None:
    x, index = floats(3, 5), np.array([[4, 0], [1, 1]], np.int32)
    got = one(t.Gather(0, 1, 1), x, index, shape=(3, 2, 2))
    assert all(
        got[r, a, b] == x[r, index[a, b]] for r in range(3) for a in range(2) for b in range(2)
    )


def ranked(row: list[float]) -> list[int]:
    def key(k: int) -> tuple[bool, float, int]:
        return math.isnan(row[k]), 0.0 if math.isnan(row[k]) else -row[k], k

    return sorted(range(len(row)), key=key)


def test_topk_and_argmax_take_the_lowest_index_of_ties_and_nan_last() -> None:
    x = np.array([[1, 3, 3, 2], [np.nan, -np.inf, np.nan, 5], [np.nan] * 4], np.float32)
    want = [ranked(r)[:3] for r in x.tolist()]
    assert one(t.TopK(0, 3, True), x, kind=I32, shape=(3, 3)).tolist() == want
    values = one(t.TopK(0, 3, False), x, shape=(3, 3))
    np.testing.assert_array_equal(values[0], [3, 3, 2])
    assert one(t.ArgMax(0), x, kind=I32, shape=(3,)).tolist() == [w[0] for w in want]


def test_ties_are_stable_in_long_rows() -> None:
    x = (np.arange(300) % 3).astype(np.float32)
    assert one(t.TopK(0, 200, True), x, kind=I32, shape=(200,)).tolist() == [
        *range(2, 300, 3), *range(1, 300, 3)
    ]


def test_a_histogram_adds_weights_by_index_and_leaves_out_what_is_no_bin() -> None:
    index = np.array([2, 0, 2, -1, 3, 0, 4], np.int32)
    ones, x = np.ones(7, np.int32), np.array([1, 2, 2**31 - 1, 9, 5, 7, 9], np.int32)
    got = one(t.Histogram(0, (1, 2)), index, ones, x, kind=I32, shape=(2, 4))
    assert got.tolist() == [[2, 0, 2, 1], [9, 0, -(2**31), 5]]  # sums wrap


def test_topk_of_integers_reaches_the_smallest_one() -> None:
    x = np.array([-(2**31), 7, -(2**31), 2**31 - 1], np.int32)
    assert one(t.TopK(0, 4, True), x, kind=I32, shape=(4,)).tolist() == [3, 1, 0, 2]


# ---- statements ----------------------------------------------------------------------------


def loop_sum(n: Node) -> list[t.Stmt]:
    """acc = 0; for k in range(n): acc = acc + x[k]; values: 1 zero, 2 k, 3 phi, 6 out."""
    scalar = type_of(F, ())
    body: tuple[t.Stmt, ...] = (
        t.Let(4, t.SliceOf(0, (Point(Var("%2")),)), scalar),
        t.Let(5, t.Binary("add", 3, 4), scalar),
    )
    zero = t.Let(1, t.Literal(0.0), scalar)
    return [zero, t.For(2, n, (t.Carry(3, 1, 5, 6, scalar),), body)]


@pytest.mark.parametrize("n", [0, 1, 9])
def test_a_loop_carries_a_value_through_a_run_time_extent(n: int) -> None:
    x = floats(9)
    total = np.float32(0)
    for v in x[:n]:
        total = np.float32(total + v)
    assert evaluate_stmts([x], loop_sum(Var("n")), 6, F, (), {"n": n}) == total


def test_carries_are_handed_on_together() -> None:
    """(a, b) = (b, a) three times swaps them."""
    kind = type_of(F, ())
    lets: list[t.Stmt] = [t.Let(0, t.Literal(1.0), kind), t.Let(1, t.Literal(2.0), kind)]
    carries = (t.Carry(3, 0, 4, 5, kind), t.Carry(4, 1, 3, 6, kind))
    loop = t.For(2, Const(3), carries, ())
    assert evaluate_stmts([], [*lets, loop], 5, F, ()) == 2.0
    assert evaluate_stmts([], [*lets, loop], 6, F, ()) == 1.0


def test_a_partial_store_marks_only_what_it_assigns() -> None:
    kind = type_of(F, (4,))
    args = (t.BodyArg("out", "write", kind, F),)
    one_let = t.Let(0, t.Literal(3.0), type_of(F, ()))
    body = t.Body(args, (one_let, t.Store(0, (Point(Const(2)),), 0)))
    effects = evaluate(body, {}, {}, {0: (4,)}, no_load, Place("f(0)", "here:1"), ExprFunctions())
    assert effects.assigned[0].tolist() == [False, False, True, False]
    assert effects.tiles[0][2] == 3.0


# ---- errors --------------------------------------------------------------------------------


def test_a_gather_out_of_range_is_an_error_that_names_the_task() -> None:
    for bad in (5, -1):
        with pytest.raises(OutOfRange, match=rf"f\(0\) uses index {bad} on axis 0 of extent 5"):
            one(t.Gather(0, 1, 0), floats(5), np.array([0, bad], np.int32), shape=(2,))


@pytest.mark.parametrize("axis", [Point(Const(4)), Point(Const(-1)), Slice(Const(-1), Const(2))])
def test_a_sub_tile_out_of_range_is_an_error(axis: Point | Slice) -> None:
    with pytest.raises(OutOfRange, match="a slice in f"):
        one(t.SliceOf(0, (axis,)), floats(4), shape=(3,))


def test_topk_of_too_few_values_is_an_error() -> None:
    with pytest.raises(OutOfRange, match="topk"):
        one(t.TopK(0, 3, True), floats(2), kind=I32, shape=(3,))


CLIPPED: dict[str, t.Op] = {
    "add": t.Binary("add", 0, 1),
    "where": t.Where(2, 0, 1),
    "matmul": t.MatMul(0, 1),
    "concat": t.Concat((0, 1), 1),
    "broadcast": t.Broadcast(0),
    "reshape": t.Reshape(0),
    "an assigned slice": t.Update(0, whole((2, 3)), 1),
    "a store": t.Unary("neg", 0),
}


@pytest.mark.parametrize("what", sorted(CLIPPED))
def test_a_clipped_axis_never_broadcasts_silently(what: str) -> None:
    cond = np.ones((2, 3), np.bool_)
    with pytest.raises(ExtentMismatch, match=rf"{what} in f\(0\) meets tiles of extents"):
        one(CLIPPED[what], floats(2, 3), floats(1, 3), cond, shape=(4, 3))
