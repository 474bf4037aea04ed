"""The memory available for weights and KV cache, on a GPU or on the host."""

from __future__ import annotations

import os
import re
from ctypes import byref, c_size_t
from pathlib import Path
from typing import NamedTuple

from ...runtime.cuda.driver import call, device

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


class FreeMemory(NamedTuple):
    """In bytes."""

    free: int
    total: int


def free_memory(target: str, index: int = 0) -> FreeMemory:
    """The memory of a GPU by its driver, or the host memory that a new array may take."""
    if target != "cuda":
        return host_memory()
    free, total = c_size_t(), c_size_t()
    with device(index).active():
        call("cuMemGetInfo", byref(free), byref(total))
    return FreeMemory(free.value, total.value)


def host_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> FreeMemory:
    """The available host memory, within the limit of a container if there is one."""
    known = _table(proc / "meminfo")
    if "MemAvailable" not in known or "MemTotal" not in known:
        page = os.sysconf("SC_PAGE_SIZE")
        return FreeMemory(os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page)
    free, total = known["MemAvailable"] << 10, known["MemTotal"] << 10
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is None or used is None:
        return FreeMemory(free, total)
    files = _table(cgroup / "memory.stat")  # the page cache, which the system can drop
    used -= files.get("inactive_file", 0) + files.get("active_file", 0)
    return FreeMemory(max(0, min(free, limit - used)), min(total, limit))


def _table(path: Path) -> dict[str, int]:
    try:
        return {k: int(v) for k, v in re.findall(r"^(\w+):?\s+(\d+)", path.read_text(), re.M)}
    except OSError:
        return {}


def _number(path: Path) -> int | None:
    """The number in a file; None if it does not exist or says `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
