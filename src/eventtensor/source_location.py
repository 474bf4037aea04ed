"""Source locations in the user's code, as `file:line`, of calls and of errors."""

from __future__ import annotations

import contextlib
import sys
import traceback
from pathlib import Path

UNKNOWN = "<unknown>"
_PACKAGE = str(Path(__file__).parent)
# `with` passes through frames of the library.
_FRAMES_WITHOUT_PLACE = (_PACKAGE, contextlib.__file__, "<")


def user_place() -> str:
    """`file:line` of the nearest caller outside this package."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_FRAMES_WITHOUT_PLACE):
            return _text(name, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return UNKNOWN


def error_place(error: BaseException) -> str:
    """`file:line` of the innermost frame outside this package that the error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_PACKAGE)]
    return _text(own[-1].filename, own[-1].lineno) if own else user_place()


def _text(file: str, line: int | None) -> str:
    return f"{Path(file).name}:{line}"
