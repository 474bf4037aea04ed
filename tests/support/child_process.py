"""The environment of processes that tests start: what the tests can import, those can."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Folders that PYTHONPATH has already come first."""
    folders = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), **(more or {})}
