"""The tiers of the tests: the table names what exists, and a mark only raises a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

TESTS = Path(__file__).parents[1]


def test_every_folder_of_tests_has_a_tier_and_every_name_is_a_file() -> None:
    folders = {p.parent.relative_to(TESTS).parts[0] for p in TESTS.rglob("test_*.py")}
    assert set(tiers.FOLDERS) == folders
    assert [name for name in tiers.FILES if not (TESTS / name).is_file()] == []
    assert {*tiers.FOLDERS.values(), *tiers.FILES.values()} <= set(tiers.TIERS)


@pytest.mark.parametrize(
    ("name", "marks", "tier"),
    [
        ("unit/test_order_graph.py", set(), "fast"),
        ("unit/test_order_graph.py", {"core", "parametrize"}, "core"),
        ("faults/test_corpus.py", {"core"}, "full"),
        ("engine/test_sampling_params.py", set(), "fast"),
        ("unit/test_fuzz_of_text.py", set(), "core"),
        ("somewhere/test_new.py", set(), "core"),
    ],
)
def test_a_mark_raises_a_test_above_its_file(name: str, marks: set[str], tier: str) -> None:
    assert tiers.tier_of(TESTS / name, marks) == tier


@pytest.mark.parametrize(("tier", "folders", "deselected"), [
    ("fast", {"unit"}, True), ("core", {"unit", "project"}, False),
    ("full", {"unit", "project", "faults"}, False),
])
def test_the_tier_that_is_asked_for_decides_what_is_collected(
    tier: str, folders: set[str], deselected: bool, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'run'}",
        "--tier",
        tier,
        "tests/unit/test_proof_holes.py",
        "tests/project/test_workflows.py",
        "tests/faults",
    ]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    found = {line.split("/")[1] for line in done.stdout.splitlines() if line.startswith("tests/")}
    assert (found, "deselected" in done.stdout) == (folders, deselected), done.stdout
