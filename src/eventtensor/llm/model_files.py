"""Small files of a model folder, as text or JSON. Sizes have limits, and each fault is an error.

A folder comes from anywhere, so nothing in it is trusted."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BadModelFile

MAX_TEXT_BYTES = 1 << 26  # of a JSON file or template
MAX_TOKENIZER_BYTES = 1 << 28  # of a tokenizer.json


def read_json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_text(path))
    except ValueError as e:
        raise BadModelFile(f"{path} is not JSON: {e}") from e
    except RecursionError as e:
        raise BadModelFile(f"{path} is nested too deeply") from e
    if not isinstance(found, dict):
        raise BadModelFile(f"{path} holds a {type(found).__name__}; it should hold a table")
    return found


def check_size(path: Path, most: int | None) -> None:
    """Checks the size of a file. Other than plain files are errors too, because opening a pipe
    waits for a writer."""
    try:
        found = path.stat()
    except OSError as e:
        raise BadModelFile(f"{path} cannot be read: {e.strerror}") from e
    if not stat.S_ISREG(found.st_mode):
        raise BadModelFile(f"{path} is no plain file")
    if most is not None and found.st_size > most:
        raise BadModelFile(
            f"{path} has {found.st_size} bytes; files of its kind have {most} at most"
        )


def read_text(path: Path) -> str:
    check_size(path, MAX_TEXT_BYTES)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise BadModelFile(f"{path} cannot be read: {e.strerror}") from e
    except UnicodeError as e:
        raise BadModelFile(f"{path} is not UTF-8: {e}") from e
