"""Every run of the tests compiles into a cache of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("ET_CACHE_DIR")
    os.environ["ET_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["ET_CACHE_DIR"]
    else:
        os.environ["ET_CACHE_DIR"] = before
