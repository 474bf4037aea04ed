"""Where a model's arrays lie: NumPy's memory for threads and the interpreter, that of a GPU for its
kernel. Small arrays that change from step to step are made twice, `here` and `there`."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import DeviceFailed
from ..runtime.arguments import bind
from ..runtime.cpu_artifact import LoadedThreads
from ..runtime.cuda.arrays import DeviceArray, adopt
from ..runtime.cuda.driver import Buffer, Device, Pinned, Stream, call, download, upload
from ..runtime.cuda.driver import device as device_of
from .checkpoint import Array, Shape
from .runner_kernels import AnyKernel
from .weight_packing import Progress

_PIECE = 64 << 20  # bytes of a weight that go to the device at once
_SMALL = 4096  # bytes that `read` brings at most
_LOOK_S = 2e-5  # from one look at whether a launch is over to the next
_ASK_S = 0.1  # after which the driver is asked whether the device is still there
Over = Callable[[], None]  # waits until a launch is over, and raises what went wrong


@dataclass(frozen=True)
class Shared:
    """An array on the host, and where the kernel sees it: the same array, or its twin."""

    here: Array
    there: Array
    pinned: bool = False


class Memory(Protocol):
    """What a step reads and writes anew is there `turns` times: as many steps may be under way.
    The `max_bound_launches` launches used last are kept, each for other numbers of tokens."""

    @property
    def turns(self) -> int: ...

    @property
    def max_bound_launches(self) -> int: ...

    def keep(self, arrays: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
        """Arrays that the kernel only reads."""

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array: ...

    def shared(self, shape: Shape, dtype: np.dtype[Any], ahead: bool = False) -> Shared:
        """With `ahead` it may be sent while launches run that do not read it."""

    def send(self, x: Shared, count: int | None = None, first: int = 0) -> None:
        """The kernel's side gets what the host's has, `count` elements of it from `first` on (None:
        all); launches that come later see it. No launch that reads it is under way."""

    def fetch(self, there: Array) -> Array:
        """A copy on the host, of after all launches."""

    def read(self, there: Array) -> Array:
        """A copy of a small array that no launch under way writes; it waits for none."""

    def move(self, to: Array, there: Array) -> None:
        """A copy that later launches see, of after all launches so far."""

    def bound(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], Over]:
        """One launch with these arguments, checked now and not again."""

    def close(self) -> None: ...


class HostMemory:
    """A launch is over when it returns."""

    turns, max_bound_launches = 1, 256

    def keep(self, arrays: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
        return dict(arrays)

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return np.zeros(shape, dtype)

    def shared(self, shape: Shape, dtype: np.dtype[Any], ahead: bool = False) -> Shared:
        one = self.zeros(shape, dtype)
        return Shared(one, one)

    def send(self, x: Shared, count: int | None = None, first: int = 0) -> None:
        """It is one array."""

    def fetch(self, there: Array) -> Array:
        return there.copy()

    def read(self, there: Array) -> Array:
        return there.copy()

    def move(self, to: Array, there: Array) -> None:
        to[:] = there

    def bound(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], Over]:
        dims, arrays = bind(kernel.interface, arguments)

        def launch() -> Over:
            kernel.backend.launch(dims, arrays)
            return _nothing

        return launch

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


class DeviceMemory:
    """All of it is freed by `close`, or when the object goes. Launches are in order on one stream,
    and with `dependent` a launch begins as workers of the one before leave: for that nothing may
    stand between them. So what changes from step to step comes and goes aside, to and from memory
    that the launches under way do not use."""

    turns, max_bound_launches = 2, 2048  # to bind takes longer than many steps do

    def __init__(self, index: int = 0) -> None:
        self.device, self._pieces = device_of(index), list[Piece]()
        self.dependent = True
        self._held: list[Pinned | Stream] = []
        with self.device.active():
            self._launches, self._aside = Stream(aside=False), Stream(aside=True)
            self._found = Pinned(_SMALL)
        self._held += [self._launches, self._aside, self._found]
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
        there = self.zeros(shape, dtype)
        if not ahead:
            return Shared(np.zeros(shape, dtype), there)
        with self.device.active():
            call("cuCtxSynchronize")  # what is sent aside must not be cleared after it has come
            pinned = Pinned(there.nbytes)
        self._held.append(pinned)
        return Shared(pinned.bytes().view(dtype).reshape(shape), there, pinned=True)

    def send(self, x: Shared, count: int | None = None, first: int = 0) -> None:
        some = x.here.reshape(-1)[first:][:count]
        to = x.there.ctypes.data + first * x.here.itemsize
        with self.device.active():
            if x.pinned:
                self._aside.upload(to, some.ctypes.data, some.nbytes)
            else:
                upload(to, some)

    def fetch(self, there: Array) -> Array:
        out = np.empty(there.shape, there.dtype)
        with self.device.active():
            download(out, there.ctypes.data)
        return out

    def read(self, there: Array) -> Array:
        assert there.nbytes <= _SMALL
        with self.device.active():
            self._aside.download(self._found.place, there.ctypes.data, there.nbytes)
            self._aside.wait()
        found = self._found.bytes()[: there.nbytes]
        return np.array(found.view(there.dtype).reshape(there.shape))

    def move(self, to: Array, there: Array) -> None:
        with self.device.active():
            self._aside.wait()  # what was sent must not come over it
            self._launches.copy(to.ctypes.data, there.ctypes.data, there.nbytes)

    def bound(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], Over]:
        assert not isinstance(kernel, LoadedThreads)
        step, over = kernel.bind(**arguments), kernel.over

        def launch() -> Over:
            with self.device.active():
                self._aside.wait()  # for what was sent
            number = step(self._launches.handle, self.dependent)
            return lambda: self._wait(lambda: over(number))

        return launch

    def _wait(self, over: Callable[[], bool]) -> None:
        """Nothing in the stream tells the host, so it looks. A device that is lost says so."""
        asked = time.monotonic()
        while not over():
            time.sleep(_LOOK_S)
            if time.monotonic() - asked < _ASK_S:
                continue
            with self.device.active():
                if self._launches.is_idle() and not over():
                    raise DeviceFailed("a launch has ended, but its workers have not")
            asked = time.monotonic()

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


def _nothing() -> None:
    """There is nothing to wait for."""


def _free(device: Device, pieces: list[Piece], held: list[Pinned | Stream]) -> None:
    with suppress(DeviceFailed), device.active():  # a lost device has nothing to give back
        call("cuCtxSynchronize")
        for piece in pieces:
            piece.buffer.free()
        for each in held:
            each.free()
    pieces.clear()
    held.clear()
