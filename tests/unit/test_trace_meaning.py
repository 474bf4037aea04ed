"""A traced body means what the Python says: bodies are evaluated and compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import eventtensor as et
from eventtensor.interp.evaluate import Place, evaluate
from eventtensor.ir.expr_functions import ExprFunctions

Array = np.ndarray


def meaning(fn: Callable[..., object], reads: list[Array], shape: tuple[int, ...],
            dtype: et.DType = et.f32, **coords: int) -> Array:
    """Trace `fn(*reads, out, *, i)` and evaluate it."""
    kinds = {np.dtype(np.float32): et.f32, np.dtype(np.int32): et.i32, np.dtype(np.int64): et.i64,
             np.dtype(np.bool_): et.bool_}
    p = et.Program("p")
    given_ = [p.input(f"x{k}", r.shape, kinds[r.dtype]) for k, r in enumerate(reads)]
    out = p.output("out", (8, *shape), dtype)
    p.call(et.task(name="t")(fn), grid=(8,), reads=given_,
           writes=lambda i: out[(i, *(slice(None) for _ in shape))])
    body = p.build().calls[0].call.body
    at = len(reads)
    with np.errstate(all="ignore"):
        effects = evaluate(
            body,
            {"i": 0, **coords},
            dict(enumerate(reads)),
            {at: shape},
            lambda t, index: 0,
            Place("t", "here"),
            ExprFunctions(),
        )
    assert effects.assigned[at].all()
    return effects.tiles[at]


X = np.arange(-12, 12, dtype=np.float32).reshape(4, 6)


def test_online_softmax_over_a_run_time_loop():
    def softmax(x, out):
        m = et.full((4,), -1e30)
        total = et.zeros((4,))
        for t in et.range(3):
            part = x[:, t * 2 : t * 2 + 2]
            new = et.maximum(m, part.max(axis=1))
            total[:] = total * et.exp(m - new) + et.exp(part - new[:, None]).sum(axis=1)
            m[:] = new
        out[:] = et.exp(x - m[:, None]) / total[:, None]

    e = np.exp(X - X.max(axis=1, keepdims=True))
    assert np.allclose(meaning(softmax, [X], (4, 6)), e / e.sum(axis=1, keepdims=True), atol=1e-6)


def test_shape_operations_agree_with_numpy():
    def f(x, out):
        y = et.concat([x.T[:, None, :].reshape(6, 4), x.transpose(1, 0)], axis=0)
        out[:] = (y @ x)[2:, 1:-1][..., None].sum(axis=(0, 2)) + x[-1, 1:5].cumsum()

    y = np.concatenate([X.T, X.T])
    expected = (y @ X)[2:, 1:-1].sum(axis=0) + np.cumsum(X[-1, 1:5])
    assert np.array_equal(meaning(f, [X], (4,)), expected)


def test_gather_topk_argmax_and_choices_agree_with_numpy():
    index = np.array([3, 0, 3], np.int32)

    def f(x, k, out, *, i):
        top, where = et.topk(x % 5.0, 2)
        rows = et.gather(x, k, axis=0)
        out[:] = rows[:, 0:2] + et.where((i > 2) & ~(rows[:, 0:2] < 0.0), top[0:3], 7.0)
        out[:, 1] = (et.argmax(x)[0:3] * 10 + where[0:3, 1]).cast(et.f32)

    mod = X % 5.0
    order = np.argsort(-mod, axis=1, kind="stable")[:, :2]
    rows = X[index]
    for i in (0, 5):
        expected = rows[:, 0:2] + np.where((i > 2) & (rows[:, 0:2] >= 0),
                                           np.take_along_axis(mod, order, 1)[0:3], 7.0)
        expected[:, 1] = X.argmax(axis=1)[0:3] * 10 + order[0:3, 1]
        assert np.array_equal(meaning(f, [X, index], (3, 2), i=i), expected)


def test_assignment_leaves_earlier_copies_alone():
    def f(x, out):
        y = x + 0.0
        kept = y[:]
        y[1:3, 0] = 100.0
        z = y
        z[0] = y[3]
        out[:] = kept - y

    y = X.copy()
    y[1:3, 0] = 100
    y[0] = y[3]
    assert np.array_equal(meaning(f, [X], (4, 6)), X - y)


# ---- random scripts, run on tiles and on arrays --------------------------------------------

REGISTERS = st.integers(0, 2)
OPS: list[Callable[..., object]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: (a * b) % 101,
    lambda a, b: a - b[0], lambda a, b: a + b.sum(axis=0),
]
SIMPLE = st.one_of(
    st.tuples(st.just("set"), REGISTERS, st.integers(0, len(OPS) - 1), REGISTERS, REGISTERS),
    st.tuples(st.just("part"), REGISTERS, st.integers(0, 2), REGISTERS),
    st.tuples(st.just("step"), REGISTERS, REGISTERS),
    st.tuples(st.just("new"), REGISTERS, REGISTERS),
    st.tuples(st.just("copy"), REGISTERS, REGISTERS),
    st.tuples(st.just("swap"), REGISTERS, REGISTERS),
)
SCRIPTS = st.recursive(
    st.lists(SIMPLE, min_size=1, max_size=3),
    lambda inner: st.lists(
        SIMPLE | st.tuples(st.just("loop"), st.integers(0, 3) | st.sampled_from("ab"), inner),
        min_size=1, max_size=4,
    ),
    max_leaves=8,
)


def copied(x):
    """A tile's [:] is a copy, an array's is a view."""
    return x.copy() if isinstance(x, np.ndarray) else x[:]


def run(script, regs, counts, count_of, t=0):
    """The same statements for tiles and for arrays; `count_of` makes a loop."""
    for s in script:
        match s:
            case "set", r, op, a, b:
                regs[r][:] = OPS[op](regs[a], regs[b])
            case "part", r, k, a:
                regs[r][k : k + 2] = regs[a][1:3]
            case "step", r, a:
                regs[r][:] = regs[a] + t
            case "new", r, a:
                fresh = regs[a] * 2
                fresh[0] = fresh[1]
                regs[r][:] = fresh % 101
            case "copy", r, a:
                regs[r][:] = regs[a]
            case "swap", r, a:
                left, right = copied(regs[r]), copied(regs[a])
                regs[r][:] = right
                regs[a][:] = left
            case "loop", n, inner:
                for u in count_of(counts[n] if isinstance(n, str) else n):
                    run(inner, regs, counts, count_of, u)


@settings(max_examples=120, deadline=None)
@given(SCRIPTS, st.integers(0, 3), st.integers(0, 3))
def test_random_scripts_with_nested_loops_agree_with_numpy(script, a: int, b: int):
    start = [np.arange(4, dtype=np.int64) + 3 * k for k in range(3)]
    counts = np.array([a, b], np.int32)

    def body(x, y, z, k, out):
        regs = [x + 0, y + 0, z + 0]
        run(script, regs, {"a": k[0], "b": k[1]}, et.range)
        out[:] = et.concat(regs)

    found = meaning(body, [*start, counts], (12,), et.i64)
    regs = [r.copy() for r in start]
    run(script, regs, {"a": a, "b": b}, range)
    assert np.array_equal(found, np.concatenate(regs))
