"""Continuous integration, hooks and the Makefile say the same: each step is a target of make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests import tiers

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
CI = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())


def recipe(target: str) -> list[str]:
    """The commands of a target."""
    found = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"the Makefile has no target {target}"
    return [line.strip() for line in found[1].splitlines()]


def steps(job: dict[str, Any]) -> Iterator[str]:
    yield from (step["run"] for step in job["steps"] if "run" in step)


def made(job: str) -> list[str]:
    """The targets of a job."""
    words = [run.split() for run in steps(CI["jobs"][job])]
    assert all(w[0] == "make" for w in words), words
    return [w[1] for w in words]


def test_every_step_is_a_target_of_make() -> None:
    asked = {target for job in CI["jobs"] for target in made(job)}
    for target in asked:
        recipe(target)
    assert asked == {
        "lint",
        "install",
        "dist",
        "test",
        "test-fast",
        "test-core",
        "test-gpu",
        "test-nightly",
    }


def test_every_job_has_a_limit_and_none_may_write() -> None:
    assert CI["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 360 for job in CI["jobs"].values())


def test_core_runs_on_every_python_and_both_processors() -> None:
    matrix = CI["jobs"]["core"]["strategy"]["matrix"]
    declared = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert matrix["python"] == declared
    assert {"arm" in name for name in matrix["os"]} == {True, False}


def test_tiers_and_their_targets_are_the_same() -> None:
    for target, tier in (
        ("test-fast", "fast"),
        ("test-core", "core"),
        ("test", "full"),
        ("test-nightly", "full"),
    ):
        (command,) = recipe(target)
        assert f"--tier {tier} " in command and tier in tiers.TIERS
        assert ("ET_FUZZ_SECONDS" in command) == (tier != "fast")


def test_hooks_are_the_commands_of_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    hooks = [re.sub(r"^\.venv/bin/", "", e).split()[:2] for e in entries]
    lint = [c.removeprefix("$(BIN)/").split()[:2] for c in recipe("lint")]
    assert hooks == lint


def test_forms_for_issues_are_forms() -> None:
    forms = [yaml.safe_load(p.read_text()) for p in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")]
    bodies = [f["body"] for f in forms if "body" in f]
    assert len(bodies) == 3
    for body in bodies:
        assert all({"id", "type", "attributes"} <= set(part) for part in body)
        assert any(part.get("validations", {}).get("required") for part in body)


def test_documents_name_targets_that_exist() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/releasing.md")]
    pages.append(ROOT / ".github/pull_request_template.md")
    named = {m for p in pages for m in re.findall(r"(?:^|`)make ([a-z-]+)", p.read_text(), re.M)}
    assert {"demo", "lint", "test", "dist", "format"} <= named
    for target in named:
        recipe(target)
