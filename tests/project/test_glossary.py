"""Each term of docs/glossary.md is where it says, with each of its names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.definitions import defined_names

ROOT = Path(__file__).resolve().parents[2]
ROWS = [line.split(" | ") for line in (ROOT / "docs/glossary.md").read_text().splitlines()
        if line.startswith("| ") and "---" not in line and not line.startswith("| term")]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("| ") for row in ROWS])
def test_a_term_is_where_the_glossary_says(row: list[str]) -> None:
    path, *names = re.findall(r"`([^`]+)`", row[-1])
    file = ROOT / "src" / "eventtensor" / path
    assert file.exists()
    assert not names or set(names) <= defined_names(file)


def test_a_term_stands_once() -> None:
    terms = [row[0] for row in ROWS]
    assert len(set(terms)) == len(terms) >= 40
