"""Many launches of one kernel, each with arrays of its own, and one wait for all of them.

Where tests run side by side, each wait for the device lasts until the other processes have had
their turn: arrays go there and back in one copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from eventtensor.runtime.cuda.device_kernel import DeviceKernel
from eventtensor.runtime.cuda.driver import DeviceBuffer, download, upload

Arrays = Mapping[str, np.ndarray]
Launch = tuple[Mapping[str, int], Arrays]
ALIGNED = 256
MOST_BYTES = 128 << 20  # of one batch


def launch_all(kernel: DeviceKernel, launches: Sequence[Launch]) -> Iterator[dict[str, np.ndarray]]:
    """What each launch makes of its arrays, in order; they are bound and enqueued one by one."""
    batch: list[Launch] = []
    size = 0
    for launch in launches:
        needed = sum(_room(x) for x in launch[1].values())
        if batch and size + needed > MOST_BYTES:
            yield from _together(kernel, batch, size)
            batch, size = [], 0
        batch.append(launch)
        size += needed
    yield from _together(kernel, batch, size)


def _room(x: np.ndarray) -> int:
    return -(-x.nbytes // ALIGNED) * ALIGNED


def _together(
    kernel: DeviceKernel, batch: Sequence[Launch], size: int
) -> list[dict[str, np.ndarray]]:
    host, memory, at = np.zeros(size, np.uint8), DeviceBuffer(), 0
    found = []
    for _, arrays in batch:
        mine = {}
        for name, x in arrays.items():
            mine[name] = host[at : at + x.nbytes].view(x.dtype).reshape(x.shape)
            mine[name][...] = x
            at += _room(x)
        found.append(mine)
    with kernel.device.active():
        memory.reserve(size)
        try:
            upload(memory.address, host)
            for (dims, _), mine in zip(batch, found, strict=True):
                kernel.bind(dims, kernel.adopt(_on_device(mine, host, memory)))()
            kernel.synchronize()
            download(host, memory.address)
        finally:
            memory.free()
    return found


def _on_device(arrays: Arrays, host: np.ndarray, memory: DeviceBuffer) -> dict[str, Any]:
    """The same places in device memory, as a stranger's arrays."""
    def place(x: np.ndarray) -> SimpleNamespace:
        address = memory.address + x.ctypes.data - host.ctypes.data
        return SimpleNamespace(__cuda_array_interface__={
            "data": (address, False), "shape": x.shape, "typestr": x.dtype.str, "version": 3})

    return {name: place(x) for name, x in arrays.items()}
