"""Compiles generated C++ into a content-addressed cache, which several processes may share.

The key covers all that changes the code: source, headers, compiler, flags, processor. A damaged
entry is built again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..config import Environment
from ..errors import CompileFailed, DiskFull, NoCompiler
from ..targets.cpu_target import CpuTarget, cpu_target
from .headers import own_digest
from .store import (
    open_folder,
    record_digest,
    recorded_facts,
    translate_write_errors,
    write_atomically,
)

DEVICE = Path(__file__).parent.parent / "device"
_SHARED = ("-shared",)
_FULL = os.strerror(errno.ENOSPC)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """A file in the cache. `fresh` is false if the cache had it."""

    path: Path
    key: str
    fresh: bool


@cache
def device_digest(*patterns: str) -> str:
    """The digest of the files in device/ that match these patterns, pattern by pattern."""
    digest = hashlib.sha256()
    for path in (p for pattern in patterns for p in sorted(DEVICE.glob(pattern))):
        name = path.relative_to(DEVICE).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def cache_key(source: str, target: CpuTarget, flags: tuple[str, ...]) -> str:
    headers = (device_digest("*.h", "*.cpp"), own_digest(source))
    parts = (source, *headers, target.identity(), " ".join(flags))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def build_library(source: str, name: str, env: Environment) -> BuildResult:
    """The shared library of a source. It is compiled if the cache has none."""
    return _build(source, name, env, _SHARED, ".so")


def build_program(source: str, name: str, env: Environment, extra: tuple[str, ...]) -> BuildResult:
    """The executable of a source with a main function."""
    return _build(source, name, env, extra, ".exe")


def _build(
    source: str, name: str, env: Environment, extra: tuple[str, ...], end: str
) -> BuildResult:
    target = cpu_target(env.cxx)
    key = cache_key(source, target, extra)
    folder = open_folder(env.cache_dir, key[:2], key)
    done = folder / f"{name}{end}"
    if recorded_facts(done) is not None:
        return BuildResult(done, key, fresh=False)
    text = folder / f"{name}.cpp"
    write_atomically(text, source.encode())
    with translate_write_errors(done):
        handle, partial = tempfile.mkstemp(dir=folder, prefix=f".{name}", suffix=end)
        os.close(handle)
    try:
        _compile(target, text, Path(partial), extra)
        with translate_write_errors(done):
            os.replace(partial, done)  # atomic: a reader sees the whole file or none
    finally:
        Path(partial).unlink(missing_ok=True)
    record_digest(done)
    return BuildResult(done, key, fresh=True)


def _compile(target: CpuTarget, source: Path, out: Path, extra: tuple[str, ...]) -> None:
    command = [
        target.compiler, *target.flags, *extra, f"-I{DEVICE}", "-o", str(out), str(source),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as e:
        raise NoCompiler(f"{target.compiler} cannot be run: {e}") from e
    if done.returncode != 0:
        shown = "\n".join(done.stderr.splitlines()[:20])
        if _FULL in done.stderr:
            raise DiskFull(f"{target.compiler} has no room for {source.stem}:\n{shown}",
                           hint="free some room; TMPDIR and ET_CACHE_DIR name folders elsewhere")
        raise CompileFailed(f"{target.compiler} refuses {source}:\n{shown}")
