"""Debug: facts about tensors that tasks compute are checked when the launch is over."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import FactViolated


@et.task
def copy(x, out):
    out[:] = x


def program(kind: str) -> et.Program:
    """A task computes indices, others read through them; `kind` says what is claimed of them."""
    p = et.Program("computed")
    raw = p.input("raw", (6,), et.i32)
    at = p.scratch("at", (7,), et.i32, bound=7, monotone=kind == "monotone",
                   distinct=kind == "distinct")
    x, z = p.input("x", (8,), et.f32), p.output("z", (6,), et.f32)
    if kind == "fact":
        p.fact(lambda i: at[i] <= i + 1, over=(6,))
    p.call(copy, name="make", grid=(), reads=lambda: raw[:], writes=lambda: at[0:6])
    p.call(copy, name="pick", grid=(6,), reads=lambda i: x[at[i]], writes=lambda i: z[i])
    return p


@pytest.mark.parametrize("kind, good, bad, text", [
    ("monotone", [0, 0, 1, 2, 5, 7], [0, 2, 1, 3, 4, 5], r"at\[1\] = 2 > at\[2\] = 1"),
    ("distinct", [5, 4, 3, 2, 1, 0], [5, 4, 3, 2, 1, 5], "holds 5 twice"),
    ("fact", [1, 2, 0, 4, 5, 6], [1, 2, 4, 0, 0, 0], "at i = 2"),
])
def test_a_computed_tensor_that_breaks_its_fact_is_found(kind, good, bad, text):
    kernel = et.compile(program(kind), workers=2, debug=True)
    x, z = np.arange(8, dtype=np.float32), np.zeros(6, np.float32)
    kernel(raw=np.array(good, np.int32), x=x, z=z)
    np.testing.assert_array_equal(z, x[good])
    with pytest.raises(FactViolated, match=text):
        kernel(raw=np.array(bad, np.int32), x=x, z=z)
    kernel(raw=np.array(good, np.int32), x=x, z=z)
    kernel.close()
