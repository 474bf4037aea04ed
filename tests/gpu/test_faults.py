"""Planted faults: the interpreter sees each of them, and none of them hangs the device.

The device side runs in a child that is ended if it takes too long; a wait there gives up early."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eventtensor.compiler import State
from eventtensor.errors import EventTensorError
from tests.gpu.child import answers
from tests.gpu.faults import SCHEDULES, planted
from tests.support.backends import ORDERS, make_arrays, passes, plan_with, run_interp
from tests.support.bases import BASES
from tests.support.mutate import Mutant
from tests.support.verdict import Subject

FAULTS = Path(__file__).parent / "faults.py"


def seen_by_the_interpreter(state: State, mutant: Mutant, dims: dict[str, int]) -> bool:
    plan, arrays = plan_with(state, mutant.derived), make_arrays(state.program, dims)
    for order, seed in ORDERS:
        try:
            _, report = run_interp(plan, dims, arrays, order, seed)
        except EventTensorError:
            return True
        if not report.ok:
            return True
    return False


@pytest.mark.parametrize("base", BASES)
def test_a_planted_fault_is_seen_and_never_hangs(base: str) -> None:
    schedule = SCHEDULES[list(BASES).index(base) % len(SCHEDULES)]
    state = passes(BASES[base].make(), schedule)
    dims = BASES[base].dims[-1]
    found = answers([sys.executable, str(FAULTS), base, schedule], seconds=50,
                    env={"ET_WAIT_LIMIT_S": "0.2"})
    ended = {row["mutant"]: row["ended"] for row in found}
    assert all(row["right_after"] for row in found), found
    for mutant in planted(state):
        kinds = {f.kind for f in Subject(state, mutant.derived, (dims,)).truth()}
        assert seen_by_the_interpreter(state, mutant, dims) == bool(kinds), mutant.name
        assert ended[mutant.name] in ("ran", "StuckWait"), ended
        if "count-high" in kinds:
            assert ended[mutant.name] == "StuckWait", ended
