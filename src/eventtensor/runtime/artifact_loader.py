"""`et.load`: loads a kernel from an artifact, for threads or a GPU.

Nothing here imports the compiler.
"""

from __future__ import annotations

from pathlib import Path

from .cpu_artifact import LoadedThreadKernel, is_cpu_artifact
from .cpu_artifact import load as load_threads
from .cuda.loaded_kernel import LoadedKernel
from .cuda.loaded_kernel import load as load_device


def load(
    folder: str | Path, device: int = 0, workers: int = 0
) -> LoadedThreadKernel | LoadedKernel:
    """The kernel that `kernel.save(folder)` wrote. It needs the processor for which it was built,
    or a GPU of the same architecture."""
    if is_cpu_artifact(folder):
        return load_threads(folder, workers)
    return load_device(folder, device, workers)
