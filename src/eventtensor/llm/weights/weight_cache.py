"""A cache of packed weights on disk, so that a checkpoint is packed once: folders of .npy files,
which are mapped into memory.

The content of the checkpoint files is the key, not their names or dates. The digest of a file is
cached as long as path, size and modification time stay the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np

from ...config import Environment, environment
from ...errors import BadWeightsCache
from ...runtime.store import (
    is_private,
    open_folder,
    partial_folder,
    publish_folder,
    remove_folder,
    translate_write_errors,
    write_atomically,
)
from ..array_types import Array, Progress, Shape
from ..model.packed_layout import packed_shapes
from ..model.tile_sizes import Layout
from .checkpoint import Checkpoint
from .weight_packing import pack_weights

_VERSION = 3  # of the result of pack_weights: increase it if the layout changes but no shape
_INDEX = "index.json"
_DTYPES = {d.name: d for d in map(np.dtype, (ml_dtypes.bfloat16, np.float32))}
# What a reader of JSON and `memmap` raise for damaged files.
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def packed_weights(
    checkpoint: Checkpoint,
    files: Sequence[Path],
    layout: Layout,
    dtype: np.dtype,
    progress: Progress | None = None,
    env: Environment | None = None,
) -> dict[str, Array]:
    """The result of `pack_weights`, from the cache if it has one. A checkpoint without files
    (random weights) is not cached."""
    if not files:
        return pack_weights(checkpoint, layout, dtype, progress)
    home = (env or environment()).cache_dir
    shapes, wanted = packed_shapes(checkpoint.config, layout), np.dtype(dtype)
    key = _key([file_digest(f, home) for f in files], layout, wanted, shapes)
    folder = open_folder(home, "weights") / key
    found = _read(folder, shapes)
    if found is None:
        remove_folder(folder)
        _write(folder, checkpoint, layout, wanted, progress)
        found = _read(folder, shapes)
    if found is None:
        raise BadWeightsCache(f"{folder} does not hold what was just written to it")
    return found


def file_digest(path: Path, home: Path) -> str:
    """The SHA-256 of a file, which is read again only if its size or modification time change."""
    path = path.resolve()
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    note = open_folder(home, "digests") / f"{name}.json"
    stat = path.stat()
    known = {"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(note.read_text())
        if is_private(note) and {k: found[k] for k in known} == known:
            return str(found["sha256"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    write_atomically(note, json.dumps({**known, "sha256": digest}).encode())
    return digest


def _key(
    digests: list[str], layout: Layout, dtype: np.dtype, shapes: dict[str, Shape]
) -> str:
    parts = (*digests, layout, dtype.name, str(sorted(shapes.items())), str(_VERSION))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _write(
    folder: Path, checkpoint: Checkpoint, layout: Layout, dtype: np.dtype, progress: Progress | None
) -> None:
    """Packs into a partial folder, which then appears as a whole under its name."""
    with partial_folder(folder) as partial:
        def allocate(name: str, shape: Shape, dtype: np.dtype) -> Array:
            return _allocate_file(partial / f"{name}.npy", shape, _storage_dtype(dtype)).view(dtype)

        arrays = pack_weights(checkpoint, layout, dtype, progress, allocate)
        index = {
            name: {"dtype": array.dtype.name, "bytes": (partial / f"{name}.npy").stat().st_size}
            for name, array in arrays.items()
        }
        del arrays  # unmaps and so writes them before the folder gets its name
        write_atomically(partial / _INDEX, json.dumps(index).encode())
        publish_folder(partial, folder)


def _allocate_file(path: Path, shape: Shape, dtype: np.dtype) -> Array:
    """A mapped .npy file with all of its disk blocks. A store into a file with holes would end the
    process if the disk is full."""
    with translate_write_errors(path):
        mapped: Array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return mapped


def _read(folder: Path, shapes: dict[str, Shape]) -> dict[str, Array] | None:
    """The mapped arrays. None if a file is missing, has another size, or may belong to another
    user. Contents are not compared, because a hash takes as long as packing."""
    with suppress(*_DAMAGE):
        index = json.loads((folder / _INDEX).read_text())
        if index.keys() != shapes.keys():
            return None
        out = {}
        for name, entry in index.items():
            path = folder / f"{name}.npy"
            if not is_private(path) or path.stat().st_size != entry["bytes"]:
                return None
            out[name] = _mapped(path, shapes[name], _DTYPES[entry["dtype"]])
        return out
    return None


def _mapped(path: Path, shape: Shape, dtype: np.dtype) -> Array:
    """Maps the end of the file. Shape and dtype are known, so the header is for other readers."""
    start = path.stat().st_size - prod(shape) * dtype.itemsize
    mapped: Array = np.memmap(path, _storage_dtype(dtype), "r", start, shape)
    return mapped.view(dtype)


def _storage_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in a .npy file, which has no bfloat16."""
    return np.dtype(np.uint16) if dtype == np.dtype(ml_dtypes.bfloat16) else dtype
