"""Every run of the tests compiles into a cache of its own, and has a core for each process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before numpy is there: its idle threads would spin on the cores of other processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all processes of the run: none compiles what another has."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "cache"
    folder.mkdir(exist_ok=True)
    before = os.environ.get("ET_CACHE_DIR")
    os.environ["ET_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["ET_CACHE_DIR"]
    else:
        os.environ["ET_CACHE_DIR"] = before
