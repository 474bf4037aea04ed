"""Kernels from artifacts on a GPU, and the calls that they share with compiled kernels.

Nothing here imports the compiler.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from ...config import environment
from ..arguments import bind
from ..launch_record import task_rows, timeline, write
from .cuda_artifact import check_architecture, read, save
from .device_kernel import DeviceKernel
from .driver import device as device_of
from .launch import BoundLaunch


class LoadedKernel:
    """A kernel from an artifact. Call it with arrays by name; dims come from their shapes."""

    def __init__(self, backend: DeviceKernel) -> None:
        self.backend, self.interface = backend, backend.image.interface

    @property
    def source(self) -> str:
        """The generated code."""
        return self.backend.source

    def __call__(self, **arrays: object) -> None:
        """Run once and wait; outputs and states are written in place."""
        call_kernel(self.backend, arrays)

    def bind(self, **arrays: object) -> BoundLaunch:
        """A bound launch for these arrays, which must be in device memory. `step(stream)` enqueues
        one launch and returns. See `BoundLaunch` for the order of launches."""
        return bind_step(self.backend, arrays)

    def synchronize(self) -> None:
        """Wait for all launches, and raise their errors."""
        self.backend.synchronize()

    def check(self) -> None:
        """Raise errors of ended launches, without waiting for others."""
        self.backend.check()

    def has_ended(self, number: int) -> bool:
        """True if the launch of this number has ended. Raises its errors."""
        return self.backend.has_ended(number)

    def over(self, number: int) -> bool:
        """The old name of `has_ended`."""
        warnings.warn("over is called has_ended now", DeprecationWarning, stacklevel=2)
        return self.has_ended(number)

    def save(self, folder: str | Path) -> None:
        """Write the artifact again."""
        save(self.backend.image, folder)

    def write_trace(self, path: str | Path) -> None:
        """The last launch as Chrome/Perfetto JSON, without edges: an artifact has no plan."""
        known, launch = self.backend.image.interface, self.backend.traced()
        write(timeline(known, launch, task_rows(known, launch)), path)

    def close(self) -> None:
        """Free the device memory. A closed kernel cannot be called."""
        self.backend.close()


def load(folder: str | Path, device: int = 0, workers: int = 0) -> LoadedKernel:
    """The kernel that `kernel.save(folder)` wrote, on a device of the same architecture."""
    image = read(folder)
    place = device_of(device)
    check_architecture(image, place.target.architecture)
    return LoadedKernel(DeviceKernel(image, place, workers, environment().wait_limit_s))


def call_kernel(backend: DeviceKernel, arguments: dict[str, object]) -> None:
    dims, arrays = bind(backend.image.interface, backend.adopt(arguments))
    backend.launch(dims, arrays)


def bind_step(backend: DeviceKernel, arguments: dict[str, object]) -> BoundLaunch:
    dims, arrays = bind(backend.image.interface, backend.adopt(arguments))
    return backend.bind(dims, arrays)
