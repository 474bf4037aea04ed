"""Packed weights on disk, so that a checkpoint is repacked once: a folder of .npy files, mapped.

The key is what the files hold, not their names or dates; a digest is remembered for as long as
path, size and time of change stay the same.
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

from ..config import Environment, environment
from ..errors import BadWeightsCache
from ..runtime.store import (
    is_private,
    open_folder,
    partial_folder,
    remove,
    show,
    write_once,
    writing,
)
from .checkpoint import Array, Checkpoint, Shape
from .tile_sizes import Layout
from .weight_packing import Progress, pack_weights, packed_shapes

_VERSION = 3  # of what pack_weights gives: a change of the layout beyond shapes must count up
_INDEX = "index.json"
_DTYPES = {d.name: d for d in map(np.dtype, (ml_dtypes.bfloat16, np.float32))}
# What a reader of JSON and `memmap` raise at files that are not what was written.
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


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
    shapes, wanted = packed_shapes(checkpoint.config, layout), np.dtype(dtype)
    key = _key([file_digest(f, home) for f in files], layout, wanted, shapes)
    folder = open_folder(home, "weights") / key
    found = _read(folder, shapes)
    if found is None:
        remove(folder)
        _write(folder, checkpoint, layout, wanted, progress)
        found = _read(folder, shapes)
    if found is None:
        raise BadWeightsCache(f"{folder} does not hold what was just written to it")
    return found


def file_digest(path: Path, home: Path) -> str:
    """sha256 of the content, read again only if size or time of change say so."""
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
    with partial_folder(folder) as partial:
        def allocate(name: str, shape: Shape, dtype: np.dtype) -> Array:
            return _reserved(partial / f"{name}.npy", shape, _stored(dtype)).view(dtype)

        arrays = pack_weights(checkpoint, layout, dtype, progress, allocate)
        index = {
            name: {"dtype": array.dtype.name, "bytes": (partial / f"{name}.npy").stat().st_size}
            for name, array in arrays.items()
        }
        del arrays  # unmapped, and so written, before the folder has its name
        write_once(partial / _INDEX, json.dumps(index).encode())
        show(partial, folder)


def _reserved(path: Path, shape: Shape, dtype: np.dtype) -> Array:
    """A mapped .npy file that has all its room on the disk: a store into a file with holes ends
    the process where the disk is full."""
    with writing(path):
        mapped: Array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return mapped


def _read(folder: Path, shapes: dict[str, Shape]) -> dict[str, Array] | None:
    """The arrays, mapped; None if something is missing, has another size, or may be of another
    user. Sizes are compared, contents are not: to hash them takes as long as to pack them."""
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
    """The end of the file: shape and dtype are known, so its header is for other readers."""
    start = path.stat().st_size - prod(shape) * dtype.itemsize
    mapped: Array = np.memmap(path, _stored(dtype), "r", start, shape)
    return mapped.view(dtype)


def _stored(dtype: np.dtype) -> np.dtype:
    """.npy files have no bfloat16."""
    return np.dtype(np.uint16) if dtype == np.dtype(ml_dtypes.bfloat16) else dtype
