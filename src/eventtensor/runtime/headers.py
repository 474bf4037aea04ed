"""Headers outside of device/ that a generated source includes: those of custom bodies.

A source names them by absolute paths, and they name one another by paths relative to themselves.
What stands between `<` and `>` belongs to the compiler, and is not followed.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def own_headers(source: str) -> list[Path]:
    """All files that are included, in the order of their paths; one that is missing is left to the
    compiler's report."""
    found: set[Path] = set()
    waiting = [Path(name) for name in _INCLUDE.findall(source) if os.path.isabs(name)]
    while waiting:
        path = waiting.pop().resolve()
        if path not in found and path.is_file():
            found.add(path)
            text = path.read_text(errors="replace")
            waiting += [path.parent / name for name in _INCLUDE.findall(text)]
    return sorted(found)


def own_digest(source: str) -> str:
    """Of these files' contents. They are read anew at each build, for their user edits them."""
    digest = hashlib.sha256()
    for path in own_headers(source):
        digest.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
