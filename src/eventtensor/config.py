"""The options of a compile, and the settings of the process environment.

No other module reads os.environ.
"""

from __future__ import annotations

import math
import os
import pwd
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BadOption

MAX_WORKERS = 1024  # threads
MAX_BLOCKS = 2**31 - 1  # the grid limit of CUDA; a GPU runs fewer at the same time


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a compile. `schedule` is auto, static, static:round_robin, ticket or push, for
    all calls or as pairs (call, schedule). `workers` 0 means one for each core. The others are for
    target cuda. Without `stream` there is no producer warp. `device` is a GPU of this machine by
    its number, or a kind of GPU by its name (`h200`)."""

    target: str = "cpu"
    schedule: str | tuple[tuple[str, str], ...] = "auto"
    workers: int = 0
    debug: bool = False
    trace: bool = False
    handoff: str | tuple[tuple[str, str], ...] = "auto"
    stream: bool = True
    device: int | str = 0

    def __post_init__(self) -> None:
        checked_workers(self.workers, MAX_BLOCKS if self.target == "cuda" else MAX_WORKERS)
        _check_device(self.device, self.target)


def _check_device(device: object, target: str) -> None:
    if isinstance(device, str) and target != "cuda":
        raise BadOption(f"device is {device!r}, a GPU, but target is {target!r}",
                        hint="target='cuda' compiles for a GPU by its name")
    is_number = isinstance(device, int) and not isinstance(device, bool) and device >= 0
    if not (is_number or isinstance(device, str)):
        raise BadOption(f"device is {device!r}",
                        hint="the number of a GPU of this machine, or a name, as 'h200'")


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings of the process environment."""

    cache_dir: Path
    cxx: str
    wait_limit_s: float
    default_workers: int
    api_key: str | None


def environment(env: Mapping[str, str] | None = None) -> Environment:
    """ET_CACHE_DIR, CXX, ET_WAIT_LIMIT_S, ET_WORKERS and ET_API_KEY, with their defaults."""
    e = os.environ if env is None else env
    workers, limit = e.get("ET_WORKERS", "").strip(), e.get("ET_WAIT_LIMIT_S", "5")
    return Environment(
        cache_dir=_cache_dir(e),
        cxx=e.get("CXX", "c++"),
        wait_limit_s=_seconds(limit),
        default_workers=_workers(workers) or min(len(os.sched_getaffinity(0)), MAX_WORKERS),
        api_key=e.get("ET_API_KEY") or None,
    )


def _cache_dir(e: Mapping[str, str]) -> Path:
    """A folder in the user's home, or without one a temporary folder with the user's number. Its
    owner is checked when it is opened. The path is absolute, because a process may change its
    working folder."""
    given = e.get("ET_CACHE_DIR")
    if given:
        return Path(given).absolute()
    for home in (e.get("HOME", ""), _home_of_user()):
        if os.path.isabs(home):
            return Path(home) / ".cache" / "eventtensor"
    return Path(tempfile.gettempdir()) / f"eventtensor-{os.getuid()}"


def _home_of_user() -> str:
    """Empty if the system has no user of this number, or no home that the user owns."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
        return home if os.stat(home).st_uid == os.getuid() else ""
    except (KeyError, OSError):
        return ""


def checked_workers(wanted: object, most: int = MAX_WORKERS) -> int:
    """A valid number of workers. 0 leaves it to the machine."""
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise BadOption(f"workers is {wanted!r}", hint="an int; 0: one for each core")
    if not 0 <= wanted <= most:
        raise BadOption(f"workers is {wanted}", hint=f"1 to {most}, or 0: one for each core")
    return wanted


def _workers(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadOption(f"ET_WORKERS is {text!r}", hint=f"a whole number, 1 to {MAX_WORKERS}")
    try:
        return checked_workers(int(text or "0"))
    except BadOption as e:
        raise BadOption(f"ET_WORKERS is {text}", hint=e.hint) from None


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise BadOption(f"ET_WAIT_LIMIT_S is {text!r}", hint="seconds, more than 0")
    return found
