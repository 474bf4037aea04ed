"""et.range loops in task bodies: carries, lazy sub-tiles, nesting, and what may not escape."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eventtensor as et
from eventtensor import errors
from eventtensor.ir.tile import Binary, Body, For, Let
from eventtensor.ir.tile_text import body_lines

N = et.dim("n", max=4096)


def trace(fn: Callable[..., object]) -> Body:
    """The body of `fn(x, k, out, *, i)`: x f32[n, 32], k i32[4], out f32[32]."""
    p = et.Program("p")
    x = p.input("x", (N, 32), et.f32)
    k = p.input("k", (4,), et.i32, bound=N)
    z = p.output("z", (8, 32), et.f32)
    p.call(et.task(name="t")(fn), grid=(8,), reads=[x, k], writes=lambda i: z[i, :])
    return p.build().calls[0].call.body


def lines(body: Body) -> list[str]:
    return [s for s in body_lines(body) if not s.startswith("arg ")]


def test_an_assigned_tile_becomes_a_carry_and_arguments_stay_outside():
    def f(x, k, out):
        acc = et.zeros((32,))
        scale = acc + 2.0
        for t in et.range(N.tiles(32)):
            acc[:] = acc + x[t * 32 : t * 32 + 32].sum(axis=0) * scale
        out[:] = acc

    assert lines(trace(f)) == [
        "%0 = arg(x) : f32[n, 32]",
        "%1 = literal(0.0) : f32[]",
        "%2 = broadcast(%1) : f32[32]",
        "%3 = literal(2.0) : f32[]",
        "%4 = broadcast(%3) : f32[32]",
        "%5 = add(%2, %4) : f32[32]",
        "for %6 < (n + 31)//32",
        "  carry %7 = %2; next %11; out %12 : f32[32]",
        "  %8 = slice(%0[%6*32:%6*32 + 32, 0:32]) : f32[min(-%6*32 + n, 32), 32]",
        "  %9 = sum(%8, axis=0) : f32[32]",
        "  %10 = mul(%9, %5) : f32[32]",
        "  %11 = add(%7, %10) : f32[32]",
        "store out[0:32] = %12",
    ]


def test_a_tile_that_is_read_and_then_assigned_is_read_through_its_phi():
    def f(x, k, out):
        m = et.zeros((32,))
        for t in et.range(4):
            old = m + 0.0
            m[:] = x[t]
            out[:] = old

    (loop,) = [s for s in trace(f).stmts if isinstance(s, For)]
    (carry,) = loop.carries
    (add,) = [s for s in loop.body if isinstance(s, Let) and isinstance(s.op, Binary)]
    assert add.op.a == carry.phi  # old = phi + 0, not init + 0


def test_a_part_of_a_tile_may_be_assigned_in_a_loop():
    def f(x, k, out):
        acc = et.zeros((4, 32))
        for t in et.range(4):
            acc[t] = x[t]
        out[:] = acc.sum(axis=0)

    found = "\n".join(lines(trace(f)))
    assert "update(%" in found and "[%3, 0:32]" in found


def test_nested_loops_carry_through_both_levels():
    def f(x, k, out):
        acc = et.zeros((32,))
        for t in et.range(4):
            for u in et.range(t + 1):
                acc[:] += x[t + u]
        out[:] = acc

    body = trace(f)
    (outer,) = [s for s in body.stmts if isinstance(s, For)]
    (inner,) = [s for s in outer.body if isinstance(s, For)]
    assert inner.carries[0].init == outer.carries[0].phi
    assert outer.carries[0].next == inner.carries[0].out
    assert str(inner.extent) == f"%{outer.var} + 1"


def test_the_extent_and_indices_may_be_read_from_tiles():
    def f(x, k, out):
        acc = et.zeros((32,))
        for t in et.range(k[0]):
            page = k[t % 4]
            acc[:] = acc + x[page * 16 : page * 16 + 16].sum(axis=0)
        out[:] = acc

    found = "\n".join(lines(trace(f)))
    assert "for %5 < %4" in found
    assert "slice(%1[%5%4]) : i32[]" in found
    extent = "min(16, max(-max(%7*16, 0) + n, 0))"
    assert f"slice(%0[%7*16:%7*16 + 16, 0:32]) : f32[{extent}, 32]" in found


def test_a_scalar_counter_can_be_carried():
    def f(x, k, out):
        at = k[0] + 0
        for _ in et.range(3):
            out[:] = x[at]
            at[:] = at + 1

    (loop,) = [s for s in trace(f).stmts if isinstance(s, For)]
    assert f"%{loop.carries[0].phi}, 0:32" in "\n".join(lines(trace(f)))


def test_stores_inside_a_loop_are_statements_of_the_loop():
    def f(x, k, out):
        for t in et.range(32):
            out[t] = x[0, t]

    (loop,) = [s for s in trace(f).stmts if isinstance(s, For)]
    assert not loop.carries and len(loop.body) == 2


def test_a_loop_without_effect_is_dropped():
    def f(x, k, out):
        acc = et.zeros((32,))
        for t in et.range(4):
            acc[:] = acc + x[t]
        out[:] = 0.0

    assert not any(isinstance(s, For) for s in trace(f).stmts)


def test_temporary_names_may_be_reused_by_later_loops():
    def f(x, k, out):
        acc = et.zeros((32,))
        for t in et.range(4):
            row, at = x[t], t * 2
            acc[:] += row * at
        for t in et.range(4):
            row, at = x[t + 4], t * 3
            acc[:] += row * at
        out[:] = acc

    assert sum(isinstance(s, For) for s in trace(f).stmts) == 2


# ---- what may not escape -------------------------------------------------------------------


def value_after(x, k, out):
    for t in et.range(4):
        row = x[t]
    out[:] = row


def rebound(x, k, out):
    acc = et.zeros((32,))
    for t in et.range(4):
        acc = acc + x[t]
    out[:] = acc


def rebound_and_unused(x, k, out):
    acc = et.zeros((32,))
    for t in et.range(4):
        acc = acc + x[t]
        out[:] = acc


def rebound_argument(x, k, out):
    for _ in et.range(4):
        x = x * 2.0
        out[:] = x[0]


def counted_in_python(x, k, out):
    count = 0
    for t in et.range(4):
        count = count + 2
        out[:] = x[t] * count


def counted_index(x, k, out, *, i):
    at = i + 1
    for _ in et.range(4):
        at = at + 1
        out[:] = x[at]


def variable_after(x, k, out):
    for t in et.range(4):
        out[:] = x[t]
    out[0] = x[t, 0]


def size_after(x, k, out):
    for t in et.range(4):
        size = k[t]
        part = x[0:size]
        rows = part.shape[0]
        out[:] = x[t]
    out[:] = x[0] * rows


@pytest.mark.parametrize("body", [
    value_after, rebound, rebound_and_unused, rebound_argument, counted_in_python, counted_index,
    variable_after, size_after,
])
def test_what_a_loop_makes_cannot_be_used_after_it(body: Callable[..., object]):
    with pytest.raises(errors.LoopEscape):
        trace(body)


def breaks(x, k, out):
    for t in et.range(4):
        out[:] = x[t]
        break


def returns(x, k, out):
    for t in et.range(4):
        out[:] = x[t]
        return


def breaks_inside(x, k, out):
    for t in et.range(4):
        for _ in et.range(4):
            out[:] = x[t]
            break


def twice(x, k, out):
    steps = et.range(4)
    for t in steps:
        out[:] = x[t]
    for t in steps:
        out[:] = x[t]


@pytest.mark.parametrize("body", [breaks, returns, breaks_inside, twice])
def test_loops_must_run_to_their_end(body: Callable[..., object]):
    with pytest.raises(errors.NotTraceable):
        trace(body)


@pytest.mark.parametrize("extent", [1.5, "n"])
def test_a_loop_needs_an_integer_extent(extent: object):
    def f(x, k, out):
        for _ in et.range(extent):
            out[:] = 0.0

    with pytest.raises(errors.BadDType):
        trace(f)


def test_a_carried_tile_keeps_its_shape_and_dtype():
    def shape(x, k, out):
        acc = et.zeros((32,))
        for _ in et.range(4):
            acc[:] = et.zeros((16,))
        out[:] = acc

    def dtype(x, k, out):
        acc = et.zeros((4,))
        for _ in et.range(4):
            acc[:] = k
        out[:] = acc.sum()

    with pytest.raises(errors.BadShape):
        trace(shape)
    with pytest.raises(errors.BadDType):
        trace(dtype)


def test_range_outside_a_body_is_refused():
    with pytest.raises(errors.NotTraceable):
        et.range(4)
