"""Task bodies that cannot be traced, and accumulate arguments: one error class a cause."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import eventtensor as et
from eventtensor import errors
from eventtensor.ir.tile import Body
from eventtensor.ir.tile_text import body_lines

N = et.dim("n", max=4096)


def trace(fn: Callable[..., object], out: object = (8, 4), dtype: et.DType = et.f32) -> Body:
    """The body of `fn(x, y, k, b, out, *, i, n)`: x f32[8, 4], y f32[4, 8], k i32[8], b bool[8, 4];
    `out` is a constant shape that the task writes."""
    p = et.Program("p")
    x = p.input("x", (8, 4), et.f32)
    y = p.input("y", (4, 8), et.f32)
    k = p.input("k", (8,), et.i32)
    b = p.input("b", (8, 4), et.bool_)
    z = p.output("z", (N, *out), dtype)
    p.call(et.task(name="t")(fn), grid=(N,), reads=[x, y, k, b],
           writes=lambda i: z[(i, *(slice(None) for _ in out))])
    return p.build().calls[0].call.body


def ops(body: Body) -> list[str]:
    """Statements without arguments."""
    return [s for s in body_lines(body) if not s.startswith("arg ") and " = arg(" not in s]


@pytest.mark.parametrize("body", [
    lambda x, y, k, b: x + y,
    lambda x, y, k, b: x @ x,
    lambda x, y, k, b: x @ k.cast(et.f32),
    lambda x, y, k, b: x.sum(axis=2),
    lambda x, y, k, b: x.sum(axis=(0, 0)),
    lambda x, y, k, b: x.sum(axis=1.0),
    lambda x, y, k, b: x.transpose(0, 0),
    lambda x, y, k, b: x.reshape(5, 5),
    lambda x, y, k, b: x.reshape(-1, 5),
    lambda x, y, k, b: x.reshape(-1, -1),
    lambda x, y, k, b: et.concat([x, y]),
    lambda x, y, k, b: et.concat([x, k.cast(et.f32)]),
    lambda x, y, k, b: et.concat([]),
    lambda x, y, k, b: x[0, 0, 0],
    lambda x, y, k, b: x[8],
    lambda x, y, k, b: x[-9],
    lambda x, y, k, b: x[3:3],
    lambda x, y, k, b: x[::2],
    lambda x, y, k, b: et.topk(x, 5)[0],
    lambda x, y, k, b: et.topk(x, 1.0)[0],
    lambda x, y, k, b: et.topk(x[0, 0], 1)[0],
    lambda x, y, k, b: et.argmax(x[0, 0]),
    lambda x, y, k, b: et.histogram(k[:, None] + k[None], [1], 4),
    lambda x, y, k, b: et.histogram(k, [], 4),
    lambda x, y, k, b: et.histogram(k, k, 4),
    lambda x, y, k, b: et.histogram(k, [1], 0),
    lambda x, y, k, b: et.histogram(k, [1], 4.0),
    lambda x, y, k, b: et.histogram(k, [et.iota(3)], 4),
    lambda x, y, k, b: et.zeros((-1,)),
    lambda x, y, k, b: x[:, 0],
    lambda x, y, k, b: x[None],
])
def test_shapes_that_do_not_fit_are_refused(body: Callable[..., object]):
    def f(x, y, k, b, out):
        out[:] = body(x, y, k, b)

    with pytest.raises(errors.BadShape):
        trace(f)


@pytest.mark.parametrize("body", [
    lambda x, y, k, b: x + k[:, None],
    lambda x, y, k, b: x + b,
    lambda x, y, k, b: k + 1.5,
    lambda x, y, k, b: k / 2,
    lambda x, y, k, b: b + b,
    lambda x, y, k, b: ~x,
    lambda x, y, k, b: x & x,
    lambda x, y, k, b: b & 1,
    lambda x, y, k, b: x + True,
    lambda x, y, k, b: et.exp(k),
    lambda x, y, k, b: -b,
    lambda x, y, k, b: b.sum(),
    lambda x, y, k, b: b.cumsum(),
    lambda x, y, k, b: et.where(x, x, x),
    lambda x, y, k, b: et.where(b, x, k[:, None]),
    lambda x, y, k, b: k[:, None] @ k[None],
    lambda x, y, k, b: et.concat([k, x[:, 0]]),
    lambda x, y, k, b: et.iota(4, et.f32),
    lambda x, y, k, b: et.full((4,), x[0], et.f32),
    lambda x, y, k, b: et.full((4,), 1, "f32"),
    lambda x, y, k, b: x.cast("f32"),
    lambda x, y, k, b: et.gather(x, x[:, 0]),
    lambda x, y, k, b: et.histogram(x[:, 0], [1], 4),
    lambda x, y, k, b: et.histogram(k, [x[:, 0]], 4),
    lambda x, y, k, b: x[x[0, 0]],
    lambda x, y, k, b: x[k],
    lambda x, y, k, b: x[1.5],
    lambda x, y, k, b: k + 2**40,
    lambda x, y, k, b: k,
    lambda x, y, k, b: N * x,
])
def test_dtypes_that_do_not_fit_are_refused(body: Callable[..., object]):
    def f(x, y, k, b, out):
        out[:] = body(x, y, k, b)

    with pytest.raises(errors.BadDType):
        trace(f)


@pytest.mark.parametrize("body", [
    lambda x, out: x if x > 0 else -x,
    lambda x, out: float(x[0, 0]),
    lambda x, out: int(x[0, 0]),
    lambda x, out: math.exp(x[0, 0]),
    lambda x, out: list(x),
    lambda x, out: len(x),
    lambda x, out: 3 in x,
    lambda x, out: range(x),
    lambda x, out: np.exp(x),
    lambda x, out: np.sum(x),
    lambda x, out: np.asarray(x),
    lambda x, out: np.arange(3) * x,
    lambda x, out: x**"a",
    lambda x, out: x + "a",
    lambda x, out: x + None,
    lambda x, out: x.tolist(),
    lambda x, out: out[:] + 1,
    lambda x, out: out + 1,
    lambda x, out: out.sum(),
    lambda x, out: list(out),
    lambda x, out: et.argmax(3),
    lambda x, out: et.dim("q") + et.iota(et.dim("q")),
])
def test_python_that_cannot_be_traced_is_refused(body: Callable[..., object]):
    def f(x, y, k, b, out):
        out[:] = 0.0
        body(x, out)

    with pytest.raises(errors.NotTraceable) as caught:
        trace(f)
    assert caught.value.place.startswith("test_trace_errors.py:")


@pytest.mark.parametrize("body", [
    lambda i, n: 1 if i < n else 0,
    lambda i, n: 1 if i == 0 else 0,
    lambda i, n: (i & 3),
    lambda i, n: (i > 0) | n,
])
def test_python_choices_on_coordinates_are_refused(body: Callable[..., object]):
    def f(x, y, k, b, out, *, i, n):
        out[:] = x * body(i, n)

    with pytest.raises(errors.NotTraceable):
        trace(f)


def test_tile_functions_outside_a_body_and_tiles_of_other_bodies_are_refused():
    kept = []

    def keep(x, y, k, b, out):
        kept.append(x)
        out[:] = x

    trace(keep)
    with pytest.raises(errors.NotTraceable):
        et.zeros((4,))
    with pytest.raises(errors.NotTraceable):
        _ = kept[0] + 1

    def use(x, y, k, b, out):
        out[:] = kept[0]

    with pytest.raises(errors.NotTraceable):
        trace(use)


def test_tensors_of_the_program_must_come_through_reads():
    p = et.Program("p")
    a, c = p.input("a", (8,), et.i32), p.output("c", (8,), et.i32)

    @et.task
    def f(x, out):
        out[:] = x + a[0]

    with pytest.raises(errors.NotTraceable, match="reads="):
        p.call(f, grid=(1,), reads=a, writes=c)


def test_returning_a_value_and_assigning_to_reads_are_refused():
    def returns(x, y, k, b, out):
        out[:] = x
        return x

    def assigns(x, y, k, b, out):
        x[:] = 0.0
        out[:] = x

    def adds_axes(x, y, k, b, out):
        out[None] = x

    with pytest.raises(errors.NotTraceable):
        trace(returns)
    with pytest.raises(errors.NotTraceable):
        trace(adds_axes)
    with pytest.raises(errors.BadCall):
        trace(assigns)


@pytest.mark.parametrize("body", [
    lambda x, y, k, out: None,
    lambda x, y, k, b, c, out: None,
    lambda *args: None,
    lambda x, y, k, b, out=None: None,
    lambda x, y, k, b, out, *, missing: None,
    lambda x, y, k, b, out, **rest: None,
])
def test_signatures_that_do_not_fit_the_call_are_refused(body: Callable[..., object]):
    with pytest.raises(errors.BadBody):
        trace(body)


def test_keyword_arguments_with_defaults_are_parameters_of_the_kind():
    def f(x, y, k, b, out, *, eps=1e-5):
        out[:] = x + eps

    assert "literal(1e-05)" in ops(trace(f))[0]


def test_every_output_must_be_assigned():
    def f(x, y, k, b, out):
        _ = x + 1

    with pytest.raises(errors.NothingWritten):
        trace(f)


# ---- accumulate arguments ------------------------------------------------------------------


def accumulate(fn: Callable[..., object]) -> Body:
    p = et.Program("p")
    x, acc = p.input("x", (8, 4), et.f32), p.output("acc", (8,), et.f32)
    p.call(et.task(name="t")(fn), grid=(4,), reads=lambda i: x[:, i], accumulates=lambda i: acc)
    return p.build().calls[0].call.body


def test_accumulate_adds_a_whole_region():
    def f(x, acc):
        acc[:] += x
        acc[...] += 1

    assert ops(accumulate(f)) == [
        "accumulate acc += %0",
        "%1 = literal(1.0) : f32[]",
        "%2 = broadcast(%1) : f32[8]",
        "accumulate acc += %2",
    ]


def test_other_uses_of_an_accumulate_argument_are_refused():
    def assign(x, acc):
        acc[:] = x

    def part(x, acc):
        acc[0:2] += x[0:2]

    def bare(x, acc):
        acc += x

    def read(x, acc):
        acc[:] += acc[:] + x

    def subtract(x, acc):
        acc[:] -= x

    def method(x, acc):
        acc[:].sum()

    for body in (assign, part, bare, read, subtract, method):
        with pytest.raises(errors.NotTraceable):
            accumulate(body)
    with pytest.raises(errors.NothingWritten):
        accumulate(lambda x, acc: None)
