"""What is made once in a run and used by many of its processes: references that take NumPy long."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from eventtensor.runtime.store import write_atomically

T = TypeVar("T")
FOLDER = "ET_TEST_SHARED"  # set by conftest.py where a run has several processes


def stored(key: str, make: Callable[[], T]) -> T:
    """The value of `make`, or what another process of this run has made under the same key."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return make()
    path = Path(folder) / f"{key}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, pickle.dumps(made))
    return made
