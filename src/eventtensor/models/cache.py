"""Packed weights on disk, so that a checkpoint is repacked once: a folder of .npy files, mapped.

The key is what the files hold, not their names or dates; a digest is remembered for as long as
path, size and time of change stay the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import ml_dtypes
import numpy as np

from ..config import Environment, environment
from ..runtime.build import write_once
from .checkpoint import Array, Checkpoint, Shape
from .pack import Progress, pack_weights, packed_shapes
from .tiles import Layout

_VERSION = 3  # of what pack_weights gives: a change of the layout beyond shapes must count up
_INDEX = "index.json"


def packed_weights(
    checkpoint: Checkpoint,
    files: Sequence[Path],
    layout: Layout,
    dtype: np.dtype,
    progress: Progress | None = None,
    env: Environment | None = None,
) -> dict[str, Array]:
    """What `pack_weights` gives, out of the cache where it is there. A checkpoint without files
    (random weights) is not kept."""
    if not files:
        return pack_weights(checkpoint, layout, dtype, progress)
    home = (env or environment()).cache_dir
    shapes = packed_shapes(checkpoint.config, layout)
    key = _key([file_digest(f, home) for f in files], layout, np.dtype(dtype), shapes)
    folder = home / "weights" / key
    if not (folder / _INDEX).is_file():
        _write(folder, checkpoint, layout, np.dtype(dtype), progress)
    return _read(folder)


def file_digest(path: Path, home: Path) -> str:
    """sha256 of the content, read again only if size or time of change say so."""
    path = path.resolve()
    note = home / "digests" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    stat = path.stat()
    known = {"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(note.read_text())
        if {k: found[k] for k in known} == known:
            return str(found["sha256"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    note.parent.mkdir(parents=True, exist_ok=True)
    write_once(note, json.dumps({**known, "sha256": digest}).encode())
    return digest


def _key(
    digests: list[str], layout: Layout, dtype: np.dtype, shapes: dict[str, Shape]
) -> str:
    parts = (*digests, layout, dtype.name, str(sorted(shapes.items())), str(_VERSION))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _write(
    folder: Path, checkpoint: Checkpoint, layout: Layout, dtype: np.dtype, progress: Progress | None
) -> None:
    """Packs into files beside the folder, which then appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}"))

    def allocate(name: str, shape: Shape, dtype: np.dtype) -> Array:
        stored = _stored(dtype)
        mapped = np.lib.format.open_memmap(partial / f"{name}.npy", "w+", stored, shape)
        return mapped.view(dtype)

    try:
        arrays = pack_weights(checkpoint, layout, dtype, progress, allocate)
        names = {name: array.dtype.name for name, array in arrays.items()}
        del arrays  # unmapped, and so written, before the folder has its name
        write_once(partial / _INDEX, json.dumps(names).encode())
        _name(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _name(partial: Path, folder: Path) -> None:
    try:
        os.rename(partial, folder)
    except OSError:
        if not (folder / _INDEX).is_file():  # else another process was first, with the same arrays
            raise


def _read(folder: Path) -> dict[str, Array]:
    names: dict[str, str] = json.loads((folder / _INDEX).read_text())
    out = {}
    for name, dtype in names.items():
        mapped = np.load(folder / f"{name}.npy", mmap_mode="r")
        out[name] = mapped.view(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return out


def _stored(dtype: np.dtype) -> np.dtype:
    """.npy files have no bfloat16."""
    return np.dtype(np.uint16) if dtype == np.dtype(ml_dtypes.bfloat16) else dtype
