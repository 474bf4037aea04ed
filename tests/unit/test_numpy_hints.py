"""What a body says when a NumPy user writes what tiles do not have: a hint that fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import EventTensorError
from eventtensor.lang import composite_functions, tile_functions
from eventtensor.lang.numpy_hints import EQUIVALENTS, HINTS
from eventtensor.lang.symbolic_tile import Tile
from eventtensor.public_names import BODY_NAMES, COMPOSED, DTYPES, FUNCTIONS

FIXED = np.arange(4, dtype=np.float32)

# What a body does with x (4, 8), v (8,) and i (4, 8) of i32: the code, and words of the hint.
WRONG: dict[str, tuple[Callable[..., Any], str, str]] = {
    "np_function": (lambda x, v, i: np.exp(x), "ET110", "use et.exp"),
    "np_sum": (lambda x, v, i: np.sum(x, axis=0), "ET110", "use et.sum"),
    "np_operator": (lambda x, v, i: np.add(x, v), "ET110", "x + y"),
    "np_concatenate": (lambda x, v, i: np.concatenate([x, x]), "ET110", "use et.concatenate"),
    "np_where": (lambda x, v, i: np.where(x > 0, x, 0), "ET110", "use et.where"),
    "np_norm": (lambda x, v, i: np.linalg.norm(x), "ET110", "et.sqrt((x * x).sum(axis))"),
    "np_array": (lambda x, v, i: np.asarray(x), "ET101", "functions of et"),
    "np_constant": (lambda x, v, i: x[:, 0] * FIXED, "ET110", "p.weight"),
    "np_constant_left": (lambda x, v, i: FIXED * x[:, 0], "ET110", "p.weight"),
    "method": (lambda x, v, i: x.tolist(), "ET110", "et.where"),
    "method_near": (lambda x, v, i: x.means(), "ET110", "x.mean is near"),
    "median": (lambda x, v, i: et.median(x, axis=0), "ET110", "et.sort(x, axis)"),
    "argmax_of_all": (lambda x, v, i: x.argmax(), "ET102", "x.flatten().argmax()"),
    "size": (lambda x, v, i: x.size, "ET110", "product of x.shape"),
    "module": (lambda x, v, i: et.linalg.inv(x), "ET110", "examples/cholesky.py"),
    "arange_floats": (lambda x, v, i: et.arange(0, 1, 0.25), "ET103", "et.iota(n).cast(et.f32)"),
    "arange_step_zero": (lambda x, v, i: et.arange(0, 8, 0), "ET102", "other than 0"),
    "et_near": (lambda x, v, i: et.maximun(x, 0), "ET110", "et.maximum is near"),
    "divide_ints": (lambda x, v, i: i / 2, "ET103", "x.cast(et.f32) / y.cast(et.f32)"),
    "divide_two_ints": (lambda x, v, i: i / i, "ET103", "x // y"),
    "mean_of_ints": (lambda x, v, i: i.mean(axis=0), "ET103", "x.cast(et.f32).mean(axis)"),
    "mixed": (lambda x, v, i: x + i, "ET103", "x.cast(et.f32)"),
    "no_dtype": (lambda x, v, i: x.astype("float64"), "ET103", "dtypes are et.f32"),
    "axis": (lambda x, v, i: x.sum(axis=2), "ET102", "axes are -2 to 1"),
    "too_many_indices": (lambda x, v, i: x[0, 0, 0], "ET102", "None adds an axis"),
    "add_an_axis": (lambda x, v, i: x + x[:, 0], "ET102", "x[:, None]"),
    "rank": (lambda x, v, i: et.stack([x, x]), "ET102", "pick with x[0]"),
    "truth": (lambda x, v, i: x if x > 0 else -x, "ET101", "et.where(cond, a, b)"),
    "iterate": (lambda x, v, i: list(x), "ET101", "et.range"),
    "sum_of_list": (lambda x, v, i: et.sum([x, x]), "ET101", "et.stack"),
    "max_over_two": (lambda x, v, i: et.max(x, x, axis=0), "ET102", "x.max(axis) reduces one"),
    "squeeze": (lambda x, v, i: x.squeeze(axis=0), "ET102", "only an axis of extent 1"),
    "uneven": (lambda x, v, i: et.split(x, 3)[0], "ET102", "divides"),
    "np_inv": (lambda x, v, i: np.linalg.inv(x), "ET110", "examples/cholesky.py"),
    "softmax": (lambda x, v, i: et.softmax(x), "ET110", "e / e.sum(axis, keepdims=True)"),
    "function_is_a_method": (lambda x, v, i: et.ravel(x), "ET110", "use x.ravel(..)"),
    "method_is_a_function": (lambda x, v, i: x.exp(), "ET110", "use et.exp(x)"),
    "nothing_near": (lambda x, v, i: et.relax(x), "ET110", "the guide lists"),
    "constant": (lambda x, v, i: et.where(x > 0, x, -et.inf), "ET110", "float('inf')"),
    "keyword": (lambda x, v, i: et.sort(x, descending=True), "ET101", "takes (x, axis=-1)"),
    "method_keyword": (lambda x, v, i: x.sum(dim=0), "ET101", "(axis=None, keepdims=False)"),
    "no_operator": (lambda x, v, i: divmod(x, 2.0), "ET101", "operations of task bodies"),
    "pick_by_tile": (lambda x, v, i: v[i[0]], "ET103", "et.gather(x, index, axis)"),
    "pick_by_condition": (lambda x, v, i: v[v > 0], "ET103", "et.where(cond, x, y)"),
    "pick_by_list": (lambda x, v, i: v[[1, 0]], "ET103", "et.stack([x[2], x[0]])"),
    "mixed_bool": (lambda x, v, i: i + (x > 0), "ET103", "x.cast(et.i32)"),
    "mixed_where": (lambda x, v, i: et.where(x > 0, i.cast(et.i64), i), "ET103", "x.cast(et.i64)"),
    "builtin_sum": (lambda x, v, i: sum(x), "ET101", "x.sum()"),
    "builtin_max": (lambda x, v, i: max(v, x), "ET101", "et.maximum"),
    "np_arange": (lambda x, v, i: np.arange(8) * v, "ET110", "et.iota(n)"),
    "step_zero": (lambda x, v, i: x[::0], "ET102", "other than 0"),
}


def refused(body: Callable[..., Any]) -> EventTensorError:
    p = et.Program("wrong")
    x, v = p.input("x", (4, 8), et.f32), p.input("v", (8,), et.f32)
    i, out = p.input("i", (4, 8), et.i32), p.output("out", (4, 8), et.f32)

    @et.task
    def kind(x, v, i, out):
        out[:] = body(x, v, i)

    with pytest.raises(EventTensorError) as found:
        p.call(kind, grid=(), reads=(x, v, i), writes=out)
    return found.value


@pytest.mark.parametrize("name", WRONG)
def test_the_hint_says_what_to_write(name: str) -> None:
    body, code, words = WRONG[name]
    error = refused(body)
    assert error.code == code, str(error)
    assert words in str(error), str(error)


def refused_kind(kind: Any, dtype: Any = et.f32, accumulate: bool = False) -> EventTensorError:
    p = et.Program("wrong")
    x, more = p.input("x", (8,), et.f32), p.scratch("more", (8,), et.f32)
    out = p.output("out", (8,), dtype)
    with pytest.raises(EventTensorError) as found:
        if accumulate:
            p.call(et.task(kind), grid=(), reads=x, accumulates=more, writes=out)
        else:
            p.call(et.task(kind), grid=(), reads=x, writes=out)
    return found.value


def test_an_assignment_names_the_dtype_of_its_place() -> None:
    def kind(x, out):
        out[:] = x > 0

    for dtype, word in ((et.f32, "x.cast(et.f32)"), (et.i32, "x.cast(et.i32)")):
        error = refused_kind(kind, dtype)
        assert error.code == "ET103" and word in str(error.hint)


def test_arguments_in_another_order_are_told_of_the_order() -> None:
    def kind(x, out, total):
        out[:] = x
        total[:] += x

    error = refused_kind(kind, accumulate=True)
    assert error.code == "ET101" and "reads, accumulates, writes" in str(error.hint)


def test_a_step_in_an_assignment_is_told_how_to_join_the_parts() -> None:
    def kind(x, out):
        out[::2] = x[::2]

    error = refused_kind(kind)
    assert error.code == "ET102" and "et.stack([even, odd], axis=-1).reshape" in str(error.hint)


def test_a_missing_name_is_told_once() -> None:
    error = refused(lambda x, v, i: et.trunc(x))
    assert error.message == "eventtensor has no 'trunc'"
    assert str(error).count("instead of trunc") == 1


def test_a_slice_with_a_step_of_a_symbolic_extent_says_why() -> None:
    n = et.dim("n", max=64)
    p = et.Program("steps")
    x, out = p.input("x", (n,), et.f32), p.output("out", (n,), et.f32)

    @et.task
    def kind(x, out):
        out[:] = x[::-1]

    with pytest.raises(EventTensorError, match="must be constants") as found:
        p.call(kind, grid=(), reads=x, writes=out)
    assert "et.gather" in str(found.value)


def test_tables_of_hints_name_nothing_that_there_is() -> None:
    """A name that `et` or tiles have needs no hint."""
    there = {*et.__all__, *(n for n in dir(Tile) if not n.startswith("_"))}
    assert not set(HINTS) & there
    assert not set(HINTS) & set(EQUIVALENTS)
    assert list(HINTS) == sorted(HINTS) and list(EQUIVALENTS) == sorted(EQUIVALENTS)


def test_hints_name_functions_that_there_are() -> None:
    words = " ".join([*HINTS.values(), *EQUIVALENTS.values()])
    named = set(re.findall(r"\bet\.(\w+)", words))
    assert named and named <= set(et.__all__)


def test_names_of_the_language_are_those_of_its_modules() -> None:
    for names, module in ((FUNCTIONS, tile_functions), (COMPOSED, composite_functions)):
        defined = {
            n
            for n, f in vars(module).items()
            if getattr(f, "__module__", "") == module.__name__ and not n.startswith("_")
        }
        assert set(names) <= defined and list(names) == sorted(names)
    assert set(et.__all__) >= BODY_NAMES == {*FUNCTIONS, *COMPOSED, *DTYPES}
    assert not set(FUNCTIONS) & set(COMPOSED)
