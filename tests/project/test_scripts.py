"""Scripts start by their paths, where nothing of the tree but src is on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# As Python does for a script: the folder of the script comes first.
IMPORT_ALL = """
import importlib, sys
sys.path[0], names = sys.argv[1], sys.argv[2:]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name != "triton":  # no test needs it
            raise
print(*(m.__name__ for m in map(sys.modules.get, sys.modules) if getattr(m, "__path__", None)))
"""


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "tools"])
def test_the_files_of_a_folder_of_scripts_import_each_other(folder: str, tmp_path: Path) -> None:
    names = sorted(p.stem for p in (ROOT / folder).glob("*.py") if p.stem != "__init__")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", IMPORT_ALL, str(ROOT / folder), *names]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {folder, "examples"} <= set(done.stdout.split())


def test_no_file_changes_where_python_looks() -> None:
    """`pythonpath` of pyproject.toml and the packages of the root do for all of them."""
    changed = [
        str(p.relative_to(ROOT))
        for folder in ("benchmarks", "examples", "tests", "tools")
        for p in (ROOT / folder).rglob("*.py")
        if "sys.path." in p.read_text() and p != Path(__file__)
    ]
    assert changed == []
