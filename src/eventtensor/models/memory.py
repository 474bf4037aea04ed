"""Where a model's arrays lie: NumPy's memory for threads and the interpreter, that of a GPU for its
kernel. Small arrays that change from step to step are made twice, `here` and `there`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Protocol

import numpy as np

from ..errors import DeviceFailed
from ..runtime.arguments import bind
from ..runtime.cpu_artifact import LoadedThreads
from ..runtime.cuda.arrays import DeviceArray, adopt
from ..runtime.cuda.driver import Buffer, Device, Mark, Pinned, call, download, upload
from ..runtime.cuda.driver import device as device_of
from .checkpoint import Array, Shape
from .kernels import AnyKernel
from .pack import Progress

_PIECE = 64 << 20  # bytes of a weight that go to the device at once
_AHEAD = 2  # launches that the device may have before it
_SMALL = 4096  # bytes that `later` brings at most


@dataclass(frozen=True)
class Shared:
    """An array on the host, and where the kernel sees it: the same array, or its twin."""

    here: Array
    there: Array
    stages: Iterator[Array] | None = None  # pinned, in turns: where copies start from


class Memory(Protocol):
    def keep(self, arrays: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
        """Arrays that the kernel only reads."""

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array: ...

    def shared(self, shape: Shape, dtype: np.dtype[Any], ahead: bool = False) -> Shared:
        """With `ahead` it may be sent while a launch that reads it runs; but not a third time
        before the first of these launches is over."""

    def send(self, x: Shared, count: int | None = None) -> None:
        """The kernel's side gets what the host's has, the first `count` elements of it (None: all);
        launches that come later see it."""

    def fetch(self, there: Array) -> Array:
        """A copy on the host, of after all launches."""

    def later(self, there: Array) -> Callable[[], Array]:
        """What gives a copy of a small array, of after all launches so far; it waits for no later
        one. At most two are under way."""

    def move(self, to: Array, there: Array) -> None:
        """A copy that later launches see, of after all launches so far."""

    def bound(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], None]:
        """One launch with these arguments, checked now and not again."""

    def close(self) -> None: ...


class HostMemory:
    def keep(self, arrays: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
        return dict(arrays)

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return np.zeros(shape, dtype)

    def shared(self, shape: Shape, dtype: np.dtype[Any], ahead: bool = False) -> Shared:
        one = self.zeros(shape, dtype)
        return Shared(one, one)

    def send(self, x: Shared, count: int | None = None) -> None:
        """It is one array."""

    def fetch(self, there: Array) -> Array:
        return there.copy()

    def later(self, there: Array) -> Callable[[], Array]:
        found = there.copy()
        return lambda: found

    def move(self, to: Array, there: Array) -> None:
        to[:] = there

    def bound(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], None]:
        dims, arrays = bind(kernel.interface, arguments)
        return lambda: kernel.backend.launch(dims, arrays)

    def close(self) -> None:
        """Nothing to release."""


class Piece:
    """Device memory as other libraries take it."""

    def __init__(self, size: int) -> None:
        self.buffer = Buffer()
        self.buffer.reserve(size)
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (size,), "typestr": "|u1", "strides": None,
            "data": (self.buffer.address, False),
        }


class _Later:
    """Where a small array goes on its way to the host."""

    def __init__(self) -> None:
        self.mark, self.pinned = Mark(), Pinned(_SMALL)
        self._bytes = self.pinned.bytes()

    def begin(self, there: Array) -> None:
        assert there.nbytes <= _SMALL
        call("cuMemcpyDtoHAsync", self.pinned.place, there.ctypes.data, there.nbytes, None)
        self.mark.set()

    def end(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        self.mark.wait()
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.array(self._bytes[:size].view(dtype).reshape(shape))


class DeviceMemory:
    """All of it is freed by `close`, or when the object goes. Copies and launches are in order on
    the legacy default stream."""

    def __init__(self, index: int = 0) -> None:
        self.device, self._pieces = device_of(index), list[Piece]()
        self._held: list[Pinned | Mark] = []
        self._laters: Iterator[_Later] | None = None
        self._close = weakref.finalize(self, _free, self.device, self._pieces, self._held)
        self._close.atexit = False  # the driver frees everything when the process ends

    def keep(self, arrays: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
        """Arrays that lie on a device already stay where they are."""
        out = dict(arrays)
        host = {name: x for name, x in arrays.items()
                if isinstance(x, np.ndarray) and not isinstance(x, DeviceArray)}
        total, done = sum(x.nbytes for x in host.values()), 0
        for name, x in host.items():
            there = self.empty(x.shape, x.dtype)
            for at, piece in _pieces(x):
                with self.device.active():
                    upload(there.ctypes.data + at, piece)
                done += piece.nbytes
                if progress is not None:
                    progress(name, done, total)
            out[name] = there
        return out

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        found = self.empty(shape, dtype)
        with self.device.active():
            self._pieces[-1].buffer.clear()
        return found

    def shared(self, shape: Shape, dtype: np.dtype[Any], ahead: bool = False) -> Shared:
        here, there = np.zeros(shape, dtype), self.zeros(shape, dtype)
        if not ahead:
            return Shared(here, there)
        with self.device.active():
            stages = [Pinned(here.nbytes) for _ in range(_AHEAD)]
        self._held += stages
        return Shared(here, there, cycle([s.bytes().view(dtype) for s in stages]))

    def send(self, x: Shared, count: int | None = None) -> None:
        some, to = x.here.reshape(-1)[:count], x.there.ctypes.data
        with self.device.active():
            if x.stages is None:
                upload(to, some)
                return
            stage = next(x.stages)[: some.size]
            stage[:] = some
            call("cuMemcpyHtoDAsync", to, stage.ctypes.data, stage.nbytes, None)

    def fetch(self, there: Array) -> Array:
        out = np.empty(there.shape, there.dtype)
        with self.device.active():
            download(out, there.ctypes.data)
        return out

    def later(self, there: Array) -> Callable[[], Array]:
        with self.device.active():
            if self._laters is None:
                made = [_Later() for _ in range(_AHEAD)]
                self._held += [x for m in made for x in (m.mark, m.pinned)]
                self._laters = cycle(made)
            found = next(self._laters)
            found.begin(there)

        def end() -> Array:
            with self.device.active():
                return found.end(there.shape, there.dtype)

        return end

    def move(self, to: Array, there: Array) -> None:
        with self.device.active():
            call("cuMemcpyDtoDAsync", to.ctypes.data, there.ctypes.data, there.nbytes, None)

    def bound(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], None]:
        assert not isinstance(kernel, LoadedThreads)
        return kernel.bind(**arguments)

    def close(self) -> None:
        self._close()

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        with self.device.active():
            piece = Piece(max(1, int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize))
        self._pieces.append(piece)
        found: Any = adopt({"": piece})[""]
        return np.asanyarray(found.view(dtype).reshape(shape))


def _pieces(x: Array) -> Iterator[tuple[int, Array]]:
    """(offset, bytes) of an array, a few at a time: it may be a mapped file."""
    flat = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    for at in range(0, flat.nbytes, _PIECE):
        yield at, flat[at : at + _PIECE]


def _free(device: Device, pieces: list[Piece], held: list[Pinned | Mark]) -> None:
    with suppress(DeviceFailed), device.active():  # a lost device has nothing to give back
        call("cuCtxSynchronize")
        for piece in pieces:
            piece.buffer.free()
        for each in held:
            each.free()
    pieces.clear()
    held.clear()
