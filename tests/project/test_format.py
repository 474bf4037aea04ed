"""Formatting of what changes: the lines of a change, and none beside them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD = {
    "a.py": "x = {  'old':1 }\n\n\ny = 1\n\n\nz = {  'old':1 }\n",
    "a.cuh": "int  old( int a );\nint y();\nint  older( int a );\n",
    "note.md": "old\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (".clang-format", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name, text in OLD.items():
        (tmp_path / name).write_text(text)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "old"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def format_changed(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/format_changed.py"), "--root", str(tree), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_has_not_changed_stays(tree: Path) -> None:
    assert format_changed(tree).returncode == 0
    assert {name: (tree / name).read_text() for name in OLD} == OLD


def test_only_lines_that_change_are_formatted(tree: Path) -> None:
    (tree / "a.py").write_text(OLD["a.py"].replace("y = 1", "y = f( 1,2 )"))
    (tree / "a.cuh").write_text(OLD["a.cuh"].replace("int y();", "int  y( int b );"))
    (tree / "b.py").write_text("n = [ 1,2 ]\n")
    checked = format_changed(tree, "--check")
    assert checked.returncode == 1
    assert all(name in checked.stderr for name in ("a.py", "a.cuh", "b.py"))
    assert (tree / "b.py").read_text() == "n = [ 1,2 ]\n"
    format_changed(tree)
    assert (tree / "a.py").read_text() == OLD["a.py"].replace("y = 1", "y = f(1, 2)")
    assert (tree / "a.cuh").read_text() == OLD["a.cuh"].replace("int y();", "int y(int b);")
    assert (tree / "b.py").read_text() == "n = [1, 2]\n"
    assert format_changed(tree, "--check").returncode == 0
