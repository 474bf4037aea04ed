"""What a body says when a NumPy user writes what tiles do not have: a hint that fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import EventTensorError
from eventtensor.lang.hints import HINTS, SPELLED
from eventtensor.lang.tile import Tile

FIXED = np.arange(4, dtype=np.float32)

# What a body does with x (4, 8), v (8,) and i (4, 8) of i32: the code, and words of the hint.
WRONG: dict[str, tuple[Callable[..., Any], str, str]] = {
    "np_function": (lambda x, v, i: np.exp(x), "ET110", "use et.exp"),
    "np_sum": (lambda x, v, i: np.sum(x, axis=0), "ET110", "use et.sum"),
    "np_operator": (lambda x, v, i: np.add(x, v), "ET110", "x + y"),
    "np_concatenate": (lambda x, v, i: np.concatenate([x, x]), "ET110", "et.concat([x, y]"),
    "np_where": (lambda x, v, i: np.where(x > 0, x, 0), "ET110", "use et.where"),
    "np_norm": (lambda x, v, i: np.linalg.norm(x), "ET110", "et.sqrt((x * x).sum(axis))"),
    "np_array": (lambda x, v, i: np.asarray(x), "ET101", "functions of et"),
    "np_constant": (lambda x, v, i: x[:, 0] * FIXED, "ET110", "p.weight"),
    "np_constant_left": (lambda x, v, i: FIXED * x[:, 0], "ET110", "p.weight"),
    "method": (lambda x, v, i: x.tolist(), "ET110", "et.where"),
    "method_near": (lambda x, v, i: x.means(), "ET110", "x.mean is near"),
    "std": (lambda x, v, i: et.std(x, axis=0), "ET101", "et.sqrt(x.var(axis))"),
    "argmax_of_all": (lambda x, v, i: x.argmax(), "ET102", "x.flatten().argmax()"),
    "size": (lambda x, v, i: x.size, "ET110", "product of x.shape"),
    "module": (lambda x, v, i: et.linalg.inv(x), "ET101", "examples/cholesky.py"),
    "arange": (lambda x, v, i: et.arange(4), "ET101", "et.iota(n)"),
    "et_near": (lambda x, v, i: et.maximun(x, 0), "ET101", "et.maximum is near"),
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
    assert not set(HINTS) & set(SPELLED)
    assert list(HINTS) == sorted(HINTS) and list(SPELLED) == sorted(SPELLED)


def test_hints_name_functions_that_there_are() -> None:
    words = " ".join([*HINTS.values(), *SPELLED.values()])
    named = set(re.findall(r"\bet\.(\w+)", words))
    assert named and named <= set(et.__all__)
