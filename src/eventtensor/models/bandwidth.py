"""What the memory of a machine gives: the floor of a decoding step is its bytes by this rate."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..config import environment
from ..runtime.cuda.driver import Buffer, call, library, refusal
from ..runtime.cuda.driver import device as device_of

_BYTES = 256 << 20  # well beyond any cache
_TIMES = 4
_COPIES = 8


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second, the best of a few tries, and how they were measured."""

    rate: float
    how: str


def measure_bandwidth(target: str) -> Bandwidth:
    return _of_device() if target == "cuda" else _of_host(environment().default_workers)


def _of_host(workers: int) -> Bandwidth:
    data = np.ones(_BYTES // 4, np.float32)
    parts = np.array_split(data, workers)
    with ThreadPoolExecutor(workers) as pool:
        seconds = _best(lambda: list(pool.map(np.maximum.reduce, parts)))
    return Bandwidth(data.nbytes / seconds, f"read by {workers} threads")


def _of_device(index: int = 0) -> Bandwidth:
    """Half of a copy is reading; both halves go over the same wires."""
    first, second = Buffer(), Buffer()
    copy = library().cuMemcpyDtoD_v2
    copy.argtypes, copy.restype = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t), ctypes.c_int

    def run() -> None:
        for _ in range(_COPIES):
            if status := copy(second.address, first.address, _BYTES):
                raise refusal("cuMemcpyDtoD", status)
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
    return Bandwidth(2 * _COPIES * _BYTES / seconds, "read and written by copies on the device")


def _best(run: Callable[[], object]) -> float:
    """Seconds of the quickest of a few runs."""
    found = []
    for _ in range(1 + _TIMES):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found[1:])
