"""Every run of the tests compiles into a cache of its own, has a core for each process, and takes
the tests of one tier (tiers.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiers
from tests.support.headers import compiler_with_headers

# Before numpy is there: its idle threads would spin on the cores of other processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all processes of the run: none compiles what another has."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_CACHE_DIR", str(folder))
        for name, value in compiler_with_headers(folder / "headers").items():
            patch.setenv(name, value)
        yield folder


# ---- tiers -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=tiers.TIERS, default="full", help="tests up to this tier")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of higher tiers are not even imported."""
    if collection_path.suffix != ".py":
        return None
    asked = config.getoption("tier")
    return True if not tiers.within(tiers.tier_of_file(collection_path), asked) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test has the mark of its tier, so that `-m core` also works."""
    taken: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        tier = tiers.tier_of(item.path, {m.name for m in item.iter_markers()})
        item.add_marker(tier)
        taken[tiers.within(tier, config.getoption("tier"))].append(item)
    config.hook.pytest_deselected(items=taken[False])
    items[:] = taken[True]
