"""`load`: a kernel from an artifact, for threads or a GPU. Nothing here imports the compiler."""

from __future__ import annotations

from pathlib import Path

from .cpu_artifact import LoadedThreads, is_for_threads
from .cpu_artifact import load as load_threads
from .cuda.loaded_kernel import LoadedKernel
from .cuda.loaded_kernel import load as load_device


def load(folder: str | Path, device: int = 0, workers: int = 0) -> LoadedThreads | LoadedKernel:
    """The kernel that `kernel.save(folder)` wrote, on a machine of the same kind: the processor it
    was built on, or a device of the same architecture."""
    if is_for_threads(folder):
        return load_threads(folder, workers)
    return load_device(folder, device, workers)
