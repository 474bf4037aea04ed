"""The folder of a tiny chat model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.tiny_chat import write_tiny_chat


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat(tmp_path_factory.mktemp("tiny") / "model")
