"""Random right programs: proved, ordered as brute force says they must be, and run to the same bits
on every back end in every order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.support.backends import (
    ORDERS,
    Arrays,
    index_data,
    is_static,
    make_arrays,
    passes,
    run_direct,
    run_interp,
)
from tests.support.blocks import FAMILIES, programs
from tests.support.draw import Drawn
from tests.support.judge import faults_of
from tests.support.world import World


def assert_equal(got: Arrays, want: Arrays) -> None:
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_right_programs_are_proved_ordered_and_exact(family: str, data: st.DataObject) -> None:
    drawn: Drawn = data.draw(programs(family))
    note(drawn.outline)
    state = passes(drawn.program)
    assert state.report is not None and state.derived is not None and state.plan is not None
    assert state.report.ok, str(state.report)
    for dims in drawn.dims:
        note(f"{dims}")
        arrays = make_arrays(drawn.program, dims, 0, drawn.given(dims))
        seen = index_data(drawn.program, dims, arrays)
        found = faults_of(World(drawn.program, state.derived, dims, seen))
        assert not found, f"{sorted(map(str, found))[:3]}\n{state.plan}"
        want = run_direct(drawn.program, dims, arrays)
        for order, seed in ORDERS:
            got, report = run_interp(state.plan, dims, arrays, order, seed)
            assert report.ok, report.error()
            if is_static(drawn.program) and not drawn.program.events:
                assert not report.unneeded, report.unneeded[:3]
            assert_equal(got, want)
