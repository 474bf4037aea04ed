"""NumPy's vocabulary at random shapes: what a body gives is what NumPy gives, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import assume, given, note
from hypothesis import strategies as st

import eventtensor as et
from eventtensor.interp.reference import run_reference

KINDS = {"float32": et.f32, "int32": et.i32, "bool": et.bool_}
Body = Callable[..., Any]
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def assert_as_numpy(body: Body, numpy: Body, *arrays: np.ndarray) -> None:
    want = np.asarray(numpy(*arrays))
    want = want.astype(np.int32) if want.dtype.kind == "i" else want
    p = et.Program("drawn")
    xs = [p.input(f"x{k}", a.shape, KINDS[a.dtype.name]) for k, a in enumerate(arrays)]
    out = p.output("out", want.shape, KINDS[want.dtype.name])

    def kind(x, out):
        out[...] = body(x)

    def kind_of_two(x, y, out):
        out[...] = body(x, y)

    p.call(et.task(kind if len(xs) == 1 else kind_of_two), grid=(), reads=tuple(xs), writes=out)
    got = np.zeros(want.shape, want.dtype)
    run_reference(p.build(), {}, {**{f"x{k}": a for k, a in enumerate(arrays)}, "out": got})
    np.testing.assert_allclose(got, want, rtol=1e-6)


def whole_numbers(shape: tuple[int, ...], kind: type = np.float32) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) * 7 % 11 - 4).astype(kind)


@given(data=st.data())
def test_reductions(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    name = data.draw(st.sampled_from(["sum", "max", "min", "mean", "var", "any", "all"]))
    keep = data.draw(st.booleans())
    kinds = [np.float32] if name in ("mean", "var") else [np.float32, np.int32, np.bool_]
    x = whole_numbers(shape, data.draw(st.sampled_from(kinds)))
    note(f"{name} {shape} {axis} {keep} {x.dtype}")
    assert_as_numpy(lambda t: getattr(et, name)(t, axis=axis, keepdims=keep),
                    lambda a: getattr(np, name)(a, axis=axis, keepdims=keep), x)


@given(data=st.data())
def test_slices_with_steps(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    ends = st.none() | st.integers(-6, 6)
    steps = st.sampled_from([None, 1, 2, 3, -1, -2])
    key = tuple(data.draw(st.builds(slice, ends, ends, steps)) for _ in shape)
    taken = [range(*k.indices(s)) for k, s in zip(key, shape, strict=True)]
    # A plain slice is no wider than NumPy's, but an end below the first element is an error.
    plain = [e for k in key if k.step in (None, 1) for e in (k.start, k.stop)]
    assume(all(taken) and all(e is None or e >= 0 for e in plain))
    note(f"{shape} {key}")
    assert_as_numpy(lambda t: t[key] * 1.0, lambda a: a[key], whole_numbers(shape))


@given(data=st.data())
def test_joining_and_taking_apart(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    times = data.draw(st.integers(1, 3))
    x = whole_numbers(shape)
    assert_as_numpy(lambda t: et.repeat(t, times, axis), lambda a: np.repeat(a, times, axis), x)
    assert_as_numpy(lambda t: et.flip(t, axis), lambda a: np.flip(a, axis), x)
    assert_as_numpy(lambda t: et.stack([t, t * 2.0], axis), lambda a: np.stack([a, a * 2], axis), x)
    assert_as_numpy(lambda t: et.concat([t, t * 2.0], axis),
                    lambda a: np.concatenate([a, a * 2], axis), x)
    assert_as_numpy(lambda t: et.split(et.repeat(t, 2, axis), 2, axis)[1] * 1.0,
                    lambda a: np.split(np.repeat(a, 2, axis), 2, axis)[1], x)
    assert_as_numpy(lambda t: et.expand_dims(t, axis), lambda a: np.expand_dims(a, axis), x)


@given(data=st.data())
def test_products(data: st.DataObject) -> None:
    lead = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    m, k, n = (data.draw(st.integers(1, 4)) for _ in range(3))
    left = data.draw(st.sampled_from([(k,), (m, k), (*lead, m, k)]))
    right = data.draw(st.sampled_from([(k,), (k, n), (*lead, k, n), (*(1 for _ in lead), k, n)]))
    note(f"{left} @ {right}")
    assert_as_numpy(lambda a, b: a @ b, lambda a, b: a @ b, whole_numbers(left),
                    whole_numbers(right))
