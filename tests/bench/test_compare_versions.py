"""`compare_versions.py`: versions take turns, and a slower or a missing row is a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "compare_versions.py"

BENCHMARK = """
import json, sys
from pathlib import Path

from version import MS

log = Path("../order.txt")
with log.open("a") as file:
    file.write(Path.cwd().name + " ")
out = Path(sys.argv[sys.argv.index("--out") + 1])
rows = [{"name": "step", "batch": b, "median": ms} for b, ms in MS.items()]
(out / "fake.json").write_text(json.dumps([*rows, {"name": "step", "batch": 9, "error": "x"}]))
"""


@pytest.fixture
def compared(tmp_path):
    """Compares two versions by the milliseconds that each takes: status, rows, order of runs."""

    def run(base, head):
        for name, ms in (("base", base), ("head", head)):
            (tmp_path / name / "src").mkdir(parents=True)
            (tmp_path / name / "benchmarks").mkdir()
            (tmp_path / name / "src" / "version.py").write_text(f"MS = {ms!r}\n")
            (tmp_path / name / "benchmarks" / "fake.py").write_text(BENCHMARK)
        out = tmp_path / "out.json"
        done = subprocess.run(
            [
                sys.executable,
                SCRIPT,
                tmp_path / "base",
                tmp_path / "head",
                "--run",
                "fake --any",
                "--repeats",
                "3",
                "--out",
                out,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert out.exists(), done.stderr
        order = (tmp_path / "order.txt").read_text().split()
        return done.returncode, json.loads(out.read_text()), order

    return run


def test_versions_alternate_and_equal_rows_pass(compared):
    status, rows, order = compared({1: 2.0}, {1: 2.01})
    assert status == 0
    assert order == ["base", "head", "head", "base", "base", "head"]
    assert [(r["batch"], r["base"], r["head"]) for r in rows] == [(1, [2.0] * 3, [2.01] * 3)]
    assert rows[0]["percent"] == pytest.approx(0.5)


def test_a_slower_row_fails(compared):
    status, rows, _ = compared({1: 2.0, 8: 4.0}, {1: 2.03, 8: 3.0})
    assert status == 1
    assert [r["percent"] for r in rows] == pytest.approx([1.5, -25.0])


def test_a_row_that_one_version_lacks_fails(compared):
    status, rows, _ = compared({1: 2.0, 8: 4.0}, {1: 2.0})
    assert status == 1 and rows[1]["percent"] is None and rows[1]["head"] == []
