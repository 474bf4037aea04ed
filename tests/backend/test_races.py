"""ThreadSanitizer over generated programs: silent when they are right, loud when a wait is gone."""

from __future__ import annotations

import re

import pytest

from eventtensor.codegen.cpp import Flavour, generate
from eventtensor.runtime.standalone_program import run_standalone

SIZES = {
    "row_sum": [{"n": n} for n in (33, 200, 7)],
    "ragged": [{"m": m} for m in (5, 2, 30)],
    "carried": [{"n": n, "layers": k} for n, k in ((33, 3), (8, 1), (60, 4))],
}


@pytest.mark.parametrize(
    "name, schedule",
    [("row_sum", "static"), ("ragged", "push"), ("carried", "ticket"), ("carried", "push")],
)
def test_no_race_in_a_right_program(lab, name: str, schedule: str) -> None:
    plan = lab.plan(lab.programs[name](), schedule)
    launches = [(dims, lab.arrays(plan, dims, k)) for k, dims in enumerate(SIZES[name])]
    found = run_standalone(plan, launches, workers=4)
    assert found.status == 0 and found.races == 0, found.log
    for (dims, arrays), tensors in zip(launches, found.tensors, strict=True):
        expected = lab.reference(plan, dims, arrays)
        lab.assert_same(tensors, expected)


def test_a_dropped_wait_is_a_race(lab) -> None:
    plan = lab.plan(lab.programs["row_sum"]())
    right = generate(plan, Flavour(debug=True))  # with random sleeps, or workers take turns
    source, dropped = re.subn(r"if \(!.*et::ev_wait\(.*\) return false;", "", right)
    assert dropped == 1
    launches = [({"n": 200}, lab.arrays(plan, {"n": 200})) for _ in range(3)]
    found = run_standalone(plan, launches, workers=4, source=source)
    assert found.races > 0
