"""Where loops are unrolled, and what is loaded ahead of their stores."""

from __future__ import annotations

import pytest

from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.scopes import Space
from eventtensor.kernel_passes.batch_loads import batch_loads
from tests.support.kernels import assign, at, body, given, kernel, shown, vector

FAR, NEAR = vector("x", 1024, Space.device), vector("v", 1024)


def test_loads_from_device_memory_come_before_the_stores() -> None:
    f = body(given(FAR), assign(NEAR, at(FAR)))
    assert (
        shown(batch_loads(f))
        == """\
waits, converged role .. role
  view x: f32[1024] in device
elements (i0 < 1024) linear(4 each), first b1 = x[i0]
  v[i0] = b1"""
    )


def test_what_is_near_is_unrolled_alone() -> None:
    f = body(given(NEAR), assign(FAR, at(NEAR)))
    assert (
        shown(batch_loads(f))
        == """\
waits, converged role .. role
  view v: f32[1024] in arena
elements (i0 < 1024) linear(4 each)
  x[i0] = v[i0]"""
    )


@pytest.mark.parametrize("extent", [256, 1000, 4096], ids=["one each", "uneven", "too many"])
def test_other_loops_stay_as_they_are(extent: int) -> None:
    far, near = vector("x", extent, Space.device), vector("v", extent)
    f = body(given(far), assign(near, at(far)))
    assert batch_loads(f) == f


def test_two_batches_of_a_body_have_names_of_their_own() -> None:
    other = vector("w", 1024)
    loops = batch_loads(body(given(FAR), assign(NEAR, at(FAR)), assign(other, at(FAR)))).body
    names = [x.name for s in loops if isinstance(s, st.Elements) for x in s.first]
    assert len(names) == 2 == len(set(names))


def test_gathered_rows_are_never_batched_with_a_serial_axis() -> None:
    serial = [s for s in kernel("gathered").body if isinstance(s, st.Elements) and s.serial]
    assert all(not s.first for s in serial)
