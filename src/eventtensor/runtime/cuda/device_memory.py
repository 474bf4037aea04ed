"""The memory of a kernel on its device.

Bound launches and captured graphs keep addresses. So no memory moves or is freed before the kernel
is closed, and a larger need gets new memory beside the old.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...codegen import abi
from ...codegen.cuda.abi import CONTROL, PROGRESS, SETS, STAMP, STAMPS, WAITED
from .driver import DeviceBuffer, PinnedHostBuffer, call, download
from .image import Image

CELL = 8  # bytes
_FIRST_CELLS = 1024


class ReservedMemory:
    """Memory that grows by half at least, so that all buffers together are a few times the last."""

    def __init__(self, cleared: bool = False) -> None:
        self._cleared = cleared
        self._all: list[DeviceBuffer] = []

    def reserve(self, size: int) -> DeviceBuffer:
        last = self._all[-1].size if self._all else 0
        if not self._all or last < size:
            fresh = DeviceBuffer()
            fresh.reserve(max(size, last + last // 2))
            self._all.append(fresh)
            if self._cleared:
                clear_now(fresh)
        return self._all[-1]

    def clear(self) -> None:
        for buffer in self._all:
            buffer.clear()

    def free(self) -> None:
        for buffer in self._all:
            buffer.free()
        self._all.clear()


def clear_now(*buffers: DeviceBuffer) -> None:
    """Clear buffers before all later work, on any stream."""
    for buffer in buffers:
        buffer.clear()
    call("cuCtxSynchronize")


class CellSets:
    """Two sets of `capacity` cells, the number of the present set, and in debug a note for each
    cell."""

    def __init__(self, capacity: int, rank: int, debug: bool) -> None:
        self.capacity = capacity
        self.cells, self.turn, self.waited = DeviceBuffer(), DeviceBuffer(), DeviceBuffer()
        self.cells.reserve(2 * capacity * CELL)
        self.turn.reserve(SETS.dtype(rank).itemsize)
        if debug:
            self.waited.reserve(capacity * WAITED.dtype(rank).itemsize)
        clear_now(*self.buffers)

    @property
    def buffers(self) -> tuple[DeviceBuffer, ...]:
        return self.cells, self.turn, self.waited


class DeviceMemory:
    """All memory of a kernel. The caller makes the device's context current."""

    def __init__(self, image: Image, workers: int, trace_capacity: int) -> None:
        rank = image.rank
        self._image = image
        self._sets: list[CellSets] = []
        self.workspace, self.arena, self.words = (
            ReservedMemory(),
            ReservedMemory(),
            ReservedMemory(cleared=True),
        )
        self.scratch: dict[str, ReservedMemory] = {}
        self.arguments: dict[str, DeviceBuffer] = {}
        self.control, self.progress, self.trace = DeviceBuffer(), DeviceBuffer(), DeviceBuffer()
        self.control.reserve(CONTROL.dtype(rank).itemsize)
        self.progress.reserve(PROGRESS.dtype(rank).itemsize * workers)
        self.trace_capacity = trace_capacity if image.trace else 0
        if image.trace:
            self.trace.reserve(abi.TRACE.dtype(rank).itemsize * workers * trace_capacity)
        self.report = PinnedHostBuffer(abi.REPORT.dtype(rank).itemsize)
        self._report_code = ctypes.c_int64.from_address(self.report.place)
        stamp = STAMP.dtype(rank)
        self.stamped = PinnedHostBuffer(STAMPS * stamp.itemsize)
        self._stamps = self.stamped.bytes().view(stamp)
        self._numbers = self._stamps["number"]
        clear_now(self.control, self.progress)

    def sets(self, cells: int) -> CellSets:
        """Sets with so many cells. Launches that share sets must be ordered."""
        last = self._sets[-1].capacity if self._sets else 0
        if not self._sets or last < cells:
            capacity = max(cells, 2 * last, _FIRST_CELLS)
            self._sets.append(CellSets(capacity, self._image.rank, self._image.debug))
        return self._sets[-1]

    @property
    def failed(self) -> bool:
        """True if a launch has left a report. It reads host memory alone."""
        return self._report_code.value != 0

    def has_ended(self, number: int) -> bool:
        """True if the launch of this number has ended. It reads host memory alone."""
        return bool(self._numbers[number % STAMPS] >= number)

    def read_stamps(self) -> Any:
        """Copies of codegen/cuda/abi.STAMP, the oldest launch first."""
        found = self._stamps[self._numbers > 0]
        return found[np.argsort(found["number"])]

    def read_report(self) -> Any:
        """A copy of the report, one record of codegen/abi.REPORT."""
        raw = ctypes.string_at(self.report.place, self.report.size)
        return np.frombuffer(raw, abi.REPORT.dtype(self._image.rank))[0]

    def read_control(self) -> Any:
        found = np.zeros(1, CONTROL.dtype(self._image.rank))
        download(found, self.control.address)
        return found[0]

    def reset(self) -> None:
        """Clear all cells and tagged elements after a failed launch, because its progress is
        unknown and epochs start again. No launch may be running."""
        self.words.clear()
        clear_now(*(b for s in self._sets for b in s.buffers), self.control, self.progress)
        ctypes.memset(self.report.place, 0, self.report.size)

    def free(self) -> None:
        for kept in (self.workspace, self.arena, self.words, *self.scratch.values()):
            kept.free()
        for buffer in (self.control, self.progress, self.trace, *self.arguments.values()):
            buffer.free()
        for buffer in (b for s in self._sets for b in s.buffers):
            buffer.free()
        self.report.free()
        self.stamped.free()
