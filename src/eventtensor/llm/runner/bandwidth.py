"""Measures the memory bandwidth of a machine. The bytes of a decode step divided by it are the
least time of the step."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ...config import environment
from ...runtime.cuda.driver import DeviceBuffer, call, driver_error, library
from ...runtime.cuda.driver import device as device_of

_BYTES = 256 << 20  # more than any cache
_RUNS = 4
_COPIES_PER_RUN = 8


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second, the best of a few runs, and how they were measured."""

    rate: float
    how: str


def measure_bandwidth(target: str) -> Bandwidth:
    return _measure_device() if target == "cuda" else _measure_host(environment().default_workers)


def _measure_host(workers: int) -> Bandwidth:
    data = np.ones(_BYTES // 4, np.float32)
    parts = np.array_split(data, workers)
    with ThreadPoolExecutor(workers) as pool:
        seconds = _best(lambda: list(pool.map(np.maximum.reduce, parts)))
    return Bandwidth(data.nbytes / seconds, f"read by {workers} threads")


def _measure_device(index: int = 0) -> Bandwidth:
    """A copy reads and writes; both count."""
    first, second = DeviceBuffer(), DeviceBuffer()
    copy = library().cuMemcpyDtoD_v2
    copy.argtypes, copy.restype = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t), ctypes.c_int

    def run() -> None:
        for _ in range(_COPIES_PER_RUN):
            if status := copy(second.address, first.address, _BYTES):
                raise driver_error("cuMemcpyDtoD", status)
        call("cuCtxSynchronize")

    with device_of(index).active():
        try:
            for buffer in (first, second):
                buffer.reserve(_BYTES)
                buffer.clear()
            seconds = _best(run)
        finally:
            first.free()
            second.free()
    rate = 2 * _COPIES_PER_RUN * _BYTES / seconds
    return Bandwidth(rate, "read and written by copies on the device")


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs."""
    found = []
    for _ in range(1 + _RUNS):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found[1:])
