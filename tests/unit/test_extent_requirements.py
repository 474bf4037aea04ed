"""What ops need of extents is proved: too few elements to pick from, and extents below zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import BadShape, NegativeExtent, TooFewElements

F, I = et.f32, et.i32  # noqa: E741


@et.task
def best_three(x, values, places):
    values[:], places[:] = et.topk(x, 3)


@et.task
def largest(x, out):
    out[...] = et.argmax(x)


@et.task
def pick(x, index, out):
    out[:] = et.gather(x, index)


@et.task
def pick_one(x, index, out):
    out[:] = x[index[0]] + et.zeros((1,))


@et.task
def put_one(x, index, out):
    out[:] = x
    out[index[0]] = 5.0


def one_call(task: object, extent: object, more: tuple[object, ...] = (), out: object = 1,
             dtype: et.DType = F) -> et.Program:
    p = et.Program("p")
    x = p.input("x", (extent,), F)
    index = [p.input(f"in{k}", (s,), I) for k, s in enumerate(more)]
    o = p.output("o", (out,), dtype)
    p.call(task, grid=(), reads=lambda: (x[:], *(i[:] for i in index)), writes=lambda: o[:])
    return p


def clipped_topk(most: int, least: int = 1, tile: int = 8) -> et.Program:
    n = et.dim("n", min=least, max=most)
    p = et.Program("p")
    x, v = p.input("x", (n,), F), p.output("v", (n.tiles(tile), 3), F)
    at = p.output("at", (n.tiles(tile), 3), I)
    p.call(best_three, grid=(n.tiles(tile),), reads=lambda i: x[i * tile : i * tile + tile],
           writes=lambda i: (v[i, :], at[i, :]))
    return p


def refused(p: et.Program, error: type[Exception], dims: dict[str, int], tells: str) -> None:
    report = et.check(p)
    (problem,) = [q for q in report.problems if q.kind.error is error]
    assert report.status == "refuted" and problem.witness is not None
    assert dict(problem.witness.dims) == dims and tells in problem.message


def test_topk_of_a_clipped_tile_is_refused() -> None:
    refused(clipped_topk(100), TooFewElements, {"n": 1}, "takes the 3 largest of an axis of extent"
            " min(-i*8 + n, 8), which needs 3 and may have 1")


def test_the_witness_is_the_first_task_that_has_too_few() -> None:
    p = clipped_topk(100, least=8)
    refused(p, TooFewElements, {"n": 9}, "may have 1")
    (problem,) = et.check(p).problems
    assert str(problem.witness) == "n = 9, best_three(i=1)"


def test_topk_of_tiles_that_surely_have_enough_is_proved() -> None:
    assert et.check(clipped_topk(8, least=3)).status == "proved"


def test_topk_along_whole_rows_is_proved() -> None:
    n = et.dim("n", min=0, max=100)
    p = et.Program("p")
    x, v, at = p.input("x", (n, 8), F), p.output("v", (n, 3), F), p.output("at", (n, 3), I)
    p.call(best_three, grid=(n.tiles(4),), reads=lambda i: x[i * 4 : i * 4 + 4, :],
           writes=lambda i: (v[i * 4 : i * 4 + 4, :], at[i * 4 : i * 4 + 4, :]))
    assert et.check(p).status == "proved"


@pytest.mark.parametrize(("task", "more", "dtype", "tells"), [
    (largest, (), I, "takes the largest of an axis of extent n"),
    (pick, (1,), F, "gathers from an axis of extent n"),
    (pick_one, (1,), F, "picks an element of an axis of extent n"),
])
def test_nothing_is_picked_of_an_axis_that_may_be_empty(
    task: object, more: tuple[int, ...], dtype: et.DType, tells: str
) -> None:
    n, m = et.dim("n", min=0, max=50), et.dim("n", min=1, max=50)
    refused(one_call(task, n, more, dtype=dtype), TooFewElements, {"n": 0}, tells)
    assert et.check(one_call(task, m, more, dtype=dtype)).ok


def test_nothing_is_put_into_an_axis_that_may_be_empty() -> None:
    n, m = et.dim("n", min=0, max=50), et.dim("n", min=1, max=50)
    refused(one_call(put_one, n, (1,), n), TooFewElements, {"n": 0}, "picks an element of")
    assert et.check(one_call(put_one, m, (1,), m)).ok


def test_what_has_no_result_needs_no_elements() -> None:
    n = et.dim("n", min=0, max=50)
    assert et.check(one_call(pick, n, (n,), n)).ok  # an index for each element
    p = et.Program("p")
    x, o = p.input("x", (n, n), F), p.output("o", (n,), I)
    p.call(largest, grid=(), reads=lambda: x[:, :], writes=lambda: o[:])
    assert et.check(p).status == "proved"
    for target in ("interp", "cpu"):
        kernel = et.compile(p, target=target)
        kernel(x=np.zeros((0, 0), np.float32), o=np.zeros(0, np.int32))
        kernel.close()


def ragged(fact: bool) -> et.Program:
    p = et.Program("p")
    ptr = p.input("ptr", (5,), I, bound=100, monotone=True)
    x, o = p.input("x", (100,), F), p.output("o", (4,), I)
    if fact:
        p.fact(lambda e: ptr[e] + 1 <= ptr[e + 1], over=(4,))
    p.call(largest, grid=(4,), reads=lambda e: x[ptr[e] : ptr[e + 1]], writes=lambda e: o[e])
    return p


def test_a_ragged_row_that_data_may_leave_empty_is_refused_without_a_fact() -> None:
    refused(ragged(False), TooFewElements, {}, "may have 0")
    assert et.check(ragged(True)).ok


@pytest.mark.parametrize("make", [
    lambda n: et.zeros((n - 5,)),
    lambda n: et.full((n - 5,), 2.0),
    lambda n: et.iota(n - 5).cast(et.f32),
    lambda n: et.zeros((n - 5, 2)).sum(axis=1),
])
def test_a_constant_of_an_extent_that_may_be_negative_is_refused(
    make: Callable[[object], et.Program]
) -> None:
    @et.task
    def joined(x, o, *, n):
        o[0] = et.concat([make(n), x], axis=0).sum()

    few, many = et.dim("n", min=1, max=100), et.dim("n", min=5, max=100)
    refused(one_call(joined, few), NegativeExtent, {"n": 1}, "extent n - 5 and may have -4")
    assert et.check(one_call(joined, many)).status == "proved"


def test_an_extent_is_looked_at_where_the_loop_runs() -> None:
    @et.task
    def tails(x, o, *, n):
        acc = et.zeros((1,))
        for t in et.range(n - 5):
            acc[:] = acc + et.zeros((n - 5 - t,)).sum() + et.iota(n - 6).sum().cast(et.f32)
        o[:] = acc

    assert et.check(one_call(tails, et.dim("n", min=1, max=100))).status == "proved"


def test_a_computed_extent_is_zero_where_it_would_be_negative() -> None:
    @et.task
    def computed(x, index, o):
        o[:] = et.concat([et.zeros((index[0],)) + 1.0, x], axis=0).sum() + et.zeros((1,))

    p = one_call(computed, et.dim("n", min=1, max=9), (1,))
    assert et.check(p).ok
    for target in ("interp", "cpu"):
        kernel, out = et.compile(p, target=target), np.zeros(1, np.float32)
        for extent, expected in ((-3, 4.0), (2, 6.0)):
            kernel(x=np.ones(4, np.float32), in0=np.array([extent], np.int32), o=out)
            assert out[0] == expected
        kernel.close()


@pytest.mark.parametrize("make", [lambda: et.iota(-4), lambda: et.full((-3,), 1, et.i32)])
def test_a_negative_number_is_no_extent(make: Callable[[], object]) -> None:
    @et.task
    def negative(x, o):
        o[:] = make()

    with pytest.raises(BadShape, match="a tile with the extent -"):
        one_call(negative, 4, dtype=I)


def test_a_product_of_extents_is_proved_by_its_factors() -> None:
    @et.task
    def flat(x, o):
        o[...] = et.argmax(x.reshape(x.shape[0] * x.shape[1]))

    n, m = et.dim("n", min=1, max=100), et.dim("m", min=1, max=100)
    p = et.Program("p")
    x, o = p.input("x", (n, m), F), p.output("o", (n.tiles(4), m.tiles(4)), I)
    p.call(flat, grid=(n.tiles(4), m.tiles(4)), writes=lambda i, j: o[i, j],
           reads=lambda i, j: x[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4])
    assert et.check(p).status == "proved"


def test_a_new_tile_may_have_the_extent_of_another() -> None:
    """In a loop, and of a slice that the body computes."""
    @et.task
    def counted(x, index, o, *, n):
        acc = et.zeros((1,))
        for t in et.range((n + 7) // 8):
            part = x[t * 8 : t * 8 + 8]
            acc[:] = acc + (part * et.iota(part.shape[0]).cast(F)).sum()
        some = x[index[0] : index[0] + 4]
        o[:] = acc + (some + et.zeros((some.shape[0],))).sum()

    assert et.check(one_call(counted, et.dim("n", min=1, max=99), (1,))).ok


@et.task
def from_the_third(x, out):
    out[:] = x[2:6].sum()


def test_a_slice_that_begins_beyond_an_empty_tile_is_refused() -> None:
    """Its extent would be negative there, though it fits wherever the tile has elements."""
    n = et.dim("n", min=0, max=9)
    problem = et.check(one_call(from_the_third, 4 * n)).problems[0]
    assert "outside its tile" in problem.message
    assert problem.witness is not None and dict(problem.witness.dims) == {"n": 0}
    fine = et.dim("n", min=1, max=9)
    assert et.check(one_call(from_the_third, 4 * fine)).ok
