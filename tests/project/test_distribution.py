"""A release: its version, its files, and its wheel where no other eventtensor is."""

from __future__ import annotations

import tarfile
import tomllib
from pathlib import Path

import pytest

import eventtensor as et
from tools import release

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-31\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive."""
    return release.build(tmp_path_factory.mktemp("dist"))


@pytest.mark.parametrize(("version", "tags", "wrong"), [
    ("1.2.0", ["v1.2.0"], []),
    ("1.2.0", ["nightly"], []),
    ("1.2.1", [], []),
    ("1.2.0", ["v1.3.0"], ["the tags are v1.3.0, but the version is 1.2.0"]),
    ("1.3.0", ["v1.3.0"], ["CHANGELOG.md has no section `## [1.3.0] - DATE`"]),
])
def test_tag_version_and_changelog_agree(version: str, tags: list[str], wrong: list[str]) -> None:
    assert list(release.disagreements(version, tags, CHANGELOG)) == wrong


def test_this_commit_is_what_its_tag_says() -> None:
    changelog = (release.ROOT / "CHANGELOG.md").read_text()
    assert release.version_of() == et.__version__
    assert not list(release.disagreements(et.__version__, release.tags_here(), changelog))


def test_a_wheel_runs_where_nothing_else_of_the_tree_is(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, archive = built
    assert release.left_out(wheel) == set()
    with tarfile.open(archive) as packed:
        names = {n.partition("/")[2] for n in packed.getnames()}
    assert {"LICENSE", "NOTICE", "README.md", "Makefile", "constraints.txt"} <= names
    assert release.try_out(wheel, tmp_path / "clean", offline=True) == (
        f"proved and run: {et.__version__}")


def test_a_wheel_that_lacks_a_file_is_seen(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src/eventtensor"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{et.__version__}"\n')
    (package / "unpacked.cuh").touch()
    monkeypatch.setattr(release, "SOURCES", tmp_path / "src")
    assert "eventtensor/unpacked.cuh" in release.left_out(built[0])


def test_pyproject_tells_licence_types_and_addresses() -> None:
    project = tomllib.loads((release.ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0" and project["license-files"] == ["LICENSE", "NOTICE"]
    assert "Typing :: Typed" in project["classifiers"] and "version" in project["dynamic"]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(project["urls"])
