"""Settings: the options of a compile, and the only reader of os.environ."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """How a program is compiled. `schedule` is auto, static, static:round_robin, ticket or push,
    for all calls or as pairs (call, schedule); `workers` 0 means one for each core. `handoff`,
    `stream` (False: no loader) and `prefetch` (bytes of certain weights that each worker asks for,
    as far as the L2, while its loader waits for run-time data) are for target cuda."""

    target: str = "cpu"
    schedule: str | tuple[tuple[str, str], ...] = "auto"
    workers: int = 0
    debug: bool = False
    trace: bool = False
    handoff: str | tuple[tuple[str, str], ...] = "auto"
    stream: bool = True
    prefetch: int = 0
    device: int = 0


@dataclass(frozen=True, slots=True)
class Environment:
    """What the process environment says."""

    cache_dir: Path
    cxx: str
    wait_limit_s: float
    default_workers: int
    api_key: str | None


def environment(env: Mapping[str, str] | None = None) -> Environment:
    """ET_CACHE_DIR, CXX, ET_WAIT_LIMIT_S, ET_WORKERS and ET_API_KEY, with their defaults."""
    e = os.environ if env is None else env
    cache = e.get("ET_CACHE_DIR") or str(Path(e.get("HOME", "/tmp")) / ".cache" / "eventtensor")
    return Environment(
        cache_dir=Path(cache),
        cxx=e.get("CXX", "c++"),
        wait_limit_s=float(e.get("ET_WAIT_LIMIT_S", "5")),
        default_workers=int(e.get("ET_WORKERS", "0")) or len(os.sched_getaffinity(0)),
        api_key=e.get("ET_API_KEY") or None,
    )
