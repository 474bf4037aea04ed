"""Each term of docs/glossary.md is where it says, with each of its names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [line.split(" | ") for line in (ROOT / "docs/glossary.md").read_text().splitlines()
        if line.startswith("| ") and "---" not in line and not line.startswith("| term")]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("| ") for row in ROWS])
def test_a_term_is_where_the_glossary_says(row: list[str]) -> None:
    path, *names = re.findall(r"`([^`]+)`", row[-1])
    text = (ROOT / "src" / "eventtensor" / path).read_text()
    assert all(re.search(rf"\b{name}\b", text) for name in names)


def test_a_term_stands_once() -> None:
    terms = [row[0] for row in ROWS]
    assert len(set(terms)) == len(terms) >= 40
