"""Generated C++ is read by people: its text is kept. UPDATE_GOLDEN=1 writes the files anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventtensor.codegen.cpp import Flavour, generate

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize(
    "name, schedule, flavour",
    [
        ("row_sum", "static", Flavour()),
        ("ragged", "push", Flavour()),
        ("carried", "ticket", Flavour(debug=True, trace=True)),
    ],
)
def test_source_is_as_kept(lab, name: str, schedule: str, flavour: Flavour) -> None:
    text = generate(lab.plan(lab.programs[name](), schedule), flavour)
    path = GOLDEN / f"{name}_{schedule}.cpp"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_generation_is_deterministic(lab) -> None:
    plans = [lab.plan(lab.programs["carried"](), "push") for _ in range(2)]
    assert generate(plans[0]) == generate(plans[1])
