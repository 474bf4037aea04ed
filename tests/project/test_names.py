"""The names of the field hold: tools/rename.py finds no old one, and follows what it moves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import rename

SOURCES = ("src", "eventtensor")
REPEATED = ("__init__.py",)
# The kernel IR replaces these folders, and names its files.
UNNAMED = ("codegen", "schedule")


def test_no_old_name_is_left() -> None:
    assert rename.old_names(*rename.read_tables([])) == []


def test_a_file_name_is_in_the_sources_once() -> None:
    files: dict[str, list[str]] = {}
    for path in rename.tracked():
        parts = Path(path).parts
        if parts[:2] == SOURCES and parts[2] not in UNNAMED and parts[-1] not in REPEATED:
            files.setdefault(parts[-1], []).append(path)
    assert {name: paths for name, paths in files.items() if len(paths) > 1} == {}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path, text in {
        "src/pack/__init__.py": "",
        "src/pack/a/__init__.py": "",
        "src/pack/a/pages.py": "from ..b.other import thing\n\nPages = thing\n",
        "src/pack/a/user.py": "from . import pages\n"
        "from .pages import Pages\n\nprint(pages.Pages)\n",
        "src/pack/b/__init__.py": "",
        "src/pack/b/other.py": "thing = 1  # see a/pages.py\n",
        "tests/test_it.py": "from pack.a.pages import (\n    Pages,\n)\n",
        "docs/text.md": "`pages.py` and pack.a.pages\n",
        "src/eventtensor/device/view.h": "#pragma once\n",
        "src/eventtensor/device/cuda/sum.cuh": '#include "../view.h"\n',
        "src/eventtensor/device/cuda/row.cuh": '#include "sum.cuh"\n#include <cmath>\n',
        "src/eventtensor/device/run.cpp": '#include "view.h"\n#include "cuda/row.cuh"\n',
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    monkeypatch.setattr(rename, "ROOT", tmp_path)
    return tmp_path


def test_imports_and_paths_follow_a_file(tree: Path) -> None:
    moves = [rename.Move("src/pack/a/pages.py", "src/pack/a/blocks.py"),
             rename.Move("src/pack/a", "src/pack/c/a")]
    rename.do_moves(moves)
    assert (tree / "src/pack/c/a/blocks.py").read_text().startswith("from ...b.other import thing")
    user = (tree / "src/pack/c/a/user.py").read_text()
    assert user == "from . import blocks\nfrom .blocks import Pages\n\nprint(blocks.Pages)\n"
    assert (tree / "tests/test_it.py").read_text().startswith("from pack.c.a.blocks import Pages")
    assert (tree / "docs/text.md").read_text() == "`blocks.py` and pack.c.a.blocks\n"
    assert (tree / "src/pack/b/other.py").read_text() == "thing = 1  # see c/a/blocks.py\n"
    before = {p: p.read_text() for p in tree.rglob("*.py")}
    rename.do_moves(moves)
    assert before == {p: p.read_text() for p in tree.rglob("*.py")}


def test_includes_follow_a_header(tree: Path) -> None:
    """They are written from the include folder, which no later move of the includer changes."""
    device = tree / "src/eventtensor/device"
    moves = [
        rename.Move(
            "src/eventtensor/device/cuda/sum.cuh", "src/eventtensor/device/cuda/ops/sum.cuh"
        )
    ]
    for _ in range(2):
        rename.do_moves(moves)
        assert (device / "cuda/ops/sum.cuh").read_text() == '#include "view.h"\n'
        row = (device / "cuda/row.cuh").read_text()
        assert row == '#include "cuda/ops/sum.cuh"\n#include <cmath>\n'
        run = (device / "run.cpp").read_text()
        assert run == '#include "view.h"\n#include "cuda/row.cuh"\n'


def test_a_change_beside_a_move_follows_it_later(tree: Path) -> None:
    """A change that was written before the move names modules by their old places."""
    moves = [rename.Move("src/pack/a", "src/pack/c/a")]
    rename.do_moves(moves)
    user, other = tree / "src/pack/c/a/user.py", tree / "src/pack/b/other.py"
    user.write_text("from ..b.other import thing\n\nprint(thing)\n")
    other.write_text("from ..a.pages import Pages  # a/pages.py\n")
    rename.do_moves(moves)
    assert user.read_text() == "from ...b.other import thing\n\nprint(thing)\n"
    assert other.read_text() == "from ..c.a.pages import Pages  # c/a/pages.py\n"
    assert rename.old_names([], moves) == []


def test_a_file_in_a_folder_that_moved_is_an_old_name(tree: Path) -> None:
    moves = [rename.Move("src/pack/a", "src/pack/c/a")]
    rename.do_moves(moves)
    (tree / "src/pack/a").mkdir(exist_ok=True)
    (tree / "src/pack/a/late.py").write_text("")
    assert rename.old_names([], moves) == ["src/pack/a/late.py is called src/pack/c/a/late.py"]


def test_a_word_is_renamed_where_its_row_says(tree: Path) -> None:
    words = [rename.Name("Pages", "BlockManager", ("src/*",), True)]
    assert len(rename.old_names(words, [])) == 3
    rename.do_names(words)
    assert "BlockManager = thing" in (tree / "src/pack/a/pages.py").read_text()
    assert "Pages" in (tree / "tests/test_it.py").read_text()
    assert rename.old_names(words, []) == []
