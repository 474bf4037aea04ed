"""The names of hand-offs as users write them. Old names work for one release, with a warning."""

from __future__ import annotations

import sys
import warnings

Asked = str | tuple[tuple[str, str], ...]
RENAMED = {"flag": "tagged", "worker": "same_worker", "table": "tagged_index", "again": "recompute"}


def with_present_names(asked: Asked) -> Asked:
    """One name for all events, or pairs of an event and a name."""
    if isinstance(asked, str):
        return _present_name(asked)
    return tuple((event, _present_name(name)) for event, name in asked)


def _present_name(name: str) -> str:
    if name not in RENAMED:
        return name
    warnings.warn(
        f"hand-off {name} is called {RENAMED[name]} now", DeprecationWarning, _level_of_user()
    )
    return RENAMED[name]


def _level_of_user() -> int:
    """The caller outside this package, whatever lies between: Python shows the warning there."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals["__name__"].startswith("eventtensor."):
        frame, level = frame.f_back, level + 1
    return level
