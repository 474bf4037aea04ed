"""Headers of custom bodies: a user's own files, which stand before the body in the kernel.

A body holds their absolute paths. What they contain is read when a kernel is built, and is a part
of its key in the cache (`runtime/headers.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import EventTensorError

Headers = tuple[str | os.PathLike[str], ...]
_REFUSED = '"\n\r'  # what no line `#include ".."` can name


def resolve_headers(
    headers: Sequence[str | os.PathLike[str]], refusal: type[EventTensorError]
) -> tuple[str, ...]:
    """Absolute paths of files that exist; a text would pass for a sequence of one-letter names."""
    if not isinstance(headers, list | tuple):
        raise refusal(f"headers={headers!r} is no sequence of files", hint="headers=(path,)")
    return tuple(_resolved(h, refusal) for h in headers)


def _resolved(header: object, refusal: type[EventTensorError]) -> str:
    if not isinstance(header, str | os.PathLike):
        raise refusal(f"headers= has {header!r}, which is no path")
    path = Path(header).resolve()
    if not path.is_file():
        raise refusal(
            f"there is no header {str(path)!r}",
            hint="Path(__file__).with_name('mine.cuh') finds one beside a module",
        )
    if any(c in str(path) for c in _REFUSED):
        raise refusal(f"no line of C++ can include {str(path)!r}", hint="give it another name")
    return str(path)


def include_lines(headers: Headers) -> list[str]:
    return [f'#include "{path}"' for path in headers]
