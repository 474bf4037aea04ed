"""The processor of this computer and its C++ compiler, as a target.

The compiler is asked once for each command. What it is called with is in runtime/cpp_build.py.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

from ..errors import NoCompiler

# -O3, not -O2: four times the matmul throughput of g++ for a quarter more compile time.
BASE_FLAGS = (
    "-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fwrapv", "-fPIC", "-pthread",
)
NATIVE_FLAGS = (("-march=native",), ("-mcpu=native",), ())


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A compiler by path and version, its flags, and the processor where `native` code runs."""

    compiler: str
    version: str
    flags: tuple[str, ...]
    processor: str

    def identity(self) -> str:
        """Everything about the machine that changes compiled code."""
        return "\n".join((self.compiler, self.version, " ".join(self.flags), self.processor))


@cache
def cpu_target(cxx: str) -> CpuTarget:
    """The target that the compiler command `cxx` gives on this machine."""
    path = which(cxx)
    if path is None:
        raise NoCompiler(f"the C++ compiler '{cxx}' is not there")
    shown = _run([path, "--version"])
    if shown is None:
        raise NoCompiler(f"'{path} --version' fails")
    native = _first(path, NATIVE_FLAGS)
    where = processor() if native else platform.machine()
    return CpuTarget(path, shown, (*BASE_FLAGS, *native), where)


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _first(path: str, choices: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """The first flags that the compiler takes without a warning."""
    for flags in choices:
        probe = [path, *flags, "-Werror", "-x", "c++", "-std=c++17", "-fsyntax-only", "/dev/null"]
        if _run(probe) is not None:
            return flags
    return ()


def processor() -> str:
    """A digest of what the processor says it can do."""
    kept = ("flags", "features", "model", "cpu part", "cpu implementer", "cpu variant", "vendor")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    facts = sorted({s for s in lines if s.lower().startswith(kept)})
    return f"{platform.machine()} {hashlib.sha256(chr(10).join(facts).encode()).hexdigest()}"
