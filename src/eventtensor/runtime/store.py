"""Files of a cache: written atomically, in private folders, with a digest.

A file that another user could have changed is not used.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import CacheUnusable, CannotWrite, DiskFull

Json = dict[str, Any]
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOCK = ".lock"
_DAY_S = 86400


# ---- writing -------------------------------------------------------------------------------


@contextmanager
def translate_write_errors(place: Path) -> Iterator[None]:
    """Turn errors of the system into errors that name the place."""
    try:
        yield
    except OSError as e:
        kind = DiskFull if e.errno in _FULL else CannotWrite
        raise kind(f"{place} cannot be written: {e.strerror}") from e


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: a reader sees the whole file or none. A failure leaves no file."""
    with translate_write_errors(path):
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(partial, path)
        finally:
            Path(partial).unlink(missing_ok=True)


# ---- folders -------------------------------------------------------------------------------


def open_folder(root: Path, *names: str) -> Path:
    """The folder root/names, which is made if it is missing. No other user can write to any part of
    it below the root."""
    place = root
    _make(place, parents=True)
    _check_folder(place, follow=True)
    for name in names:
        place = place / name
        _make(place)
        _check_folder(place)
    return place


def _make(place: Path, parents: bool = False) -> None:
    with translate_write_errors(place):
        place.mkdir(0o700, parents=parents, exist_ok=True)


def _check_folder(place: Path, follow: bool = False) -> None:
    """Refuse a folder of another user. A root may be a link of the same user."""
    found = os.lstat(place)
    if follow and stat.S_ISLNK(found.st_mode) and _is_ours(found):
        found = os.stat(place)
    if not stat.S_ISDIR(found.st_mode):
        raise CacheUnusable(f"{place} is not a folder")
    if not _is_ours(found):
        raise CacheUnusable(f"{place} belongs to another user (number {found.st_uid})")
    if not found.st_mode & _OTHERS_WRITE or found.st_mode & stat.S_ISVTX:
        return
    try:
        place.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS_WRITE)
    except OSError as e:
        raise CacheUnusable(f"other users can write to {place}") from e


def is_private(path: Path) -> bool:
    """True for a regular file that no other user can have written."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _is_ours(found) and not found.st_mode & _OTHERS_WRITE


def _is_ours(found: os.stat_result) -> bool:
    """True for files of this user and of the system."""
    return found.st_uid in (0, os.getuid())


# ---- digests -------------------------------------------------------------------------------


def facts_of_data(data: bytes) -> Json:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def record_digest(path: Path, **facts: Any) -> None:
    """Record the digest of a file, and facts about it."""
    with translate_write_errors(path):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS_WRITE)
        data = path.read_bytes()
    write_atomically(_sidecar_path(path), json.dumps({**facts_of_data(data), **facts}).encode())


def recorded_facts(path: Path) -> Json | None:
    """The recorded facts of a file, or None if the file has changed."""
    note = _sidecar_path(path)
    if not (is_private(path) and is_private(note)):
        return None
    with suppress(OSError, ValueError, RecursionError):
        facts = json.loads(note.read_bytes())
        if isinstance(facts, dict) and facts.items() >= facts_of_data(path.read_bytes()).items():
            return facts
    return None


def _sidecar_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


# ---- atomic folders -----------------------------------------------------------------------


@contextmanager
def partial_folder(place: Path) -> Iterator[Path]:
    """A hidden folder beside `place`, which is renamed to it or removed. Those of dead processes,
    whose locks are free, are removed now."""
    _sweep(place.parent)
    with translate_write_errors(place):
        partial = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}"))
    lock = os.open(partial / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield partial
    finally:
        os.close(lock)
        shutil.rmtree(partial, ignore_errors=True)


def publish_folder(partial: Path, place: Path) -> None:
    """Rename the folder to `place`, unless another process was first."""
    with translate_write_errors(place):
        (partial / _LOCK).unlink()
        try:
            os.rename(partial, place)
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def remove_folder(place: Path) -> None:
    """Remove a folder at once for readers: it is renamed first."""
    if not os.path.lexists(place):
        return
    with translate_write_errors(place):
        gone = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}"))
        with suppress(FileNotFoundError):  # another process was first
            os.rename(place, gone)
        shutil.rmtree(gone, ignore_errors=True)


def _sweep(home: Path) -> None:
    for left in home.glob(".*"):
        with suppress(OSError):
            if _is_stale(left):
                shutil.rmtree(left, ignore_errors=True)


def _is_stale(partial: Path) -> bool:
    """True if whoever wrote to it is gone. Without a lock its age tells."""
    try:
        lock = os.open(partial / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - partial.stat().st_mtime > _DAY_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    finally:
        os.close(lock)
