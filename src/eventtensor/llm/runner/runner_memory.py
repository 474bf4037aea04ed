"""The memory of a runner: NumPy arrays for threads and the interpreter, device memory for a GPU.
Small arrays that change from step to step exist twice, on the `host` and on the `device`."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...errors import DeviceFailed
from ...runtime.arguments import bind
from ...runtime.cpu_artifact import LoadedThreadKernel
from ...runtime.cuda.device_arrays import DeviceArray, adopt
from ...runtime.cuda.driver import (
    CudaStream,
    Device,
    DeviceBuffer,
    PinnedHostBuffer,
    call,
    download,
    upload,
)
from ...runtime.cuda.driver import device as device_of
from ..array_types import Array, Progress, Shape
from .runner_kernels import AnyKernel

_COPY_BYTES = 64 << 20  # of a weight at once
_SMALL_BYTES = 4096  # that `fetch_small` copies at most
_POLL_S = 2e-5  # between two polls for the end of a launch
_DEVICE_CHECK_S = 0.1  # after which the driver is asked for a lost device
Wait = Callable[[], None]  # waits for the end of a launch, and raises its error


@dataclass(frozen=True)
class Shared:
    """An array on the host, and the one that the kernel reads: the same, or its twin."""

    host: Array
    device: Array
    is_pinned: bool = False


class Memory(Protocol):
    """Inputs and outputs of a step have `num_buffers` buffers, so as many steps may be in flight.
    The `max_bound_launches` launches used last are kept, each for other numbers of tokens."""

    @property
    def num_buffers(self) -> int: ...

    @property
    def max_bound_launches(self) -> int: ...

    def place_weights(
        self, arrays: Mapping[str, Any], progress: Progress | None
    ) -> dict[str, Any]:
        """Arrays that the kernel only reads, in this memory."""

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array: ...

    def shared(self, shape: Shape, dtype: np.dtype[Any], is_async: bool = False) -> Shared:
        """`is_async`: the array may be sent while launches run that do not read it."""

    def send(self, x: Shared, count: int | None = None, first: int = 0) -> None:
        """Copies `count` elements from `first` on (None: all) from the host to the device. Later
        launches see them; no launch that reads the array is in flight."""

    def fetch(self, array: Array) -> Array:
        """A copy on the host, after all launches."""

    def fetch_small(self, array: Array) -> Array:
        """A copy of a small array that no launch in flight writes; it waits for no launch."""

    def copy(self, to: Array, source: Array) -> None:
        """Copies on the device, after the launches so far and before later ones."""

    def bind_launch(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], Wait]:
        """A launch with these arguments, which are checked now and not again."""

    def close(self) -> None: ...


class HostMemory:
    """A launch is over when it returns."""

    num_buffers, max_bound_launches = 1, 256

    def place_weights(
        self, arrays: Mapping[str, Any], progress: Progress | None
    ) -> dict[str, Any]:
        return dict(arrays)

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return np.zeros(shape, dtype)

    def shared(self, shape: Shape, dtype: np.dtype[Any], is_async: bool = False) -> Shared:
        one = self.zeros(shape, dtype)
        return Shared(one, one)

    def send(self, x: Shared, count: int | None = None, first: int = 0) -> None:
        """Nothing to copy: both are one array."""

    def fetch(self, array: Array) -> Array:
        return array.copy()

    def fetch_small(self, array: Array) -> Array:
        return array.copy()

    def copy(self, to: Array, source: Array) -> None:
        to[:] = source

    def bind_launch(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], Wait]:
        dims, arrays = bind(kernel.interface, arguments)

        def launch() -> Wait:
            kernel.backend.launch(dims, arrays)
            return _no_wait

        return launch

    def close(self) -> None:
        """Nothing to release."""


class DeviceBlock:
    """A block of device memory with the array interface of other libraries."""

    def __init__(self, size: int) -> None:
        self.buffer = DeviceBuffer()
        self.buffer.reserve(size)
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (size,), "typestr": "|u1", "strides": None,
            "data": (self.buffer.address, False),
        }


class DeviceMemory:
    """Device memory, freed by `close` or with the object. Launches are in order on one stream. With
    `dependent` a launch begins as workers of the one before leave, which no copy between them may
    prevent. So inputs and outputs are copied on a second stream, to and from buffers that the
    launches in flight do not use."""

    num_buffers, max_bound_launches = 2, 2048  # a bind takes longer than many steps

    def __init__(self, index: int = 0) -> None:
        self.device, self._blocks = device_of(index), list[DeviceBlock]()
        self.dependent = True
        self._held: list[PinnedHostBuffer | CudaStream] = []
        with self.device.active():
            self._launches, self._copies = CudaStream(aside=False), CudaStream(aside=True)
            self._staging = PinnedHostBuffer(_SMALL_BYTES)
        self._held += [self._launches, self._copies, self._staging]
        self._close = weakref.finalize(self, _free, self.device, self._blocks, self._held)
        self._close.atexit = False  # the driver frees everything when the process ends

    def place_weights(
        self, arrays: Mapping[str, Any], progress: Progress | None
    ) -> dict[str, Any]:
        """Arrays on a device already stay where they are."""
        out = dict(arrays)
        host = {name: x for name, x in arrays.items()
                if isinstance(x, np.ndarray) and not isinstance(x, DeviceArray)}
        total, done = sum(x.nbytes for x in host.values()), 0
        for name, x in host.items():
            on_device = self.empty(x.shape, x.dtype)
            for at, piece in _pieces(x):
                with self.device.active():
                    upload(on_device.ctypes.data + at, piece)
                done += piece.nbytes
                if progress is not None:
                    progress(name, done, total)
            out[name] = on_device
        return out

    def zeros(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        found = self.empty(shape, dtype)
        with self.device.active():
            self._blocks[-1].buffer.clear()
        return found

    def shared(self, shape: Shape, dtype: np.dtype[Any], is_async: bool = False) -> Shared:
        on_device = self.zeros(shape, dtype)
        if not is_async:
            return Shared(np.zeros(shape, dtype), on_device)
        with self.device.active():
            call("cuCtxSynchronize")  # a copy must not precede the clearing
            pinned = PinnedHostBuffer(on_device.nbytes)
        self._held.append(pinned)
        return Shared(pinned.bytes().view(dtype).reshape(shape), on_device, is_pinned=True)

    def send(self, x: Shared, count: int | None = None, first: int = 0) -> None:
        some = x.host.reshape(-1)[first:][:count]
        to = x.device.ctypes.data + first * x.host.itemsize
        with self.device.active():
            if x.is_pinned:
                self._copies.upload(to, some.ctypes.data, some.nbytes)
            else:
                upload(to, some)

    def fetch(self, array: Array) -> Array:
        out = np.empty(array.shape, array.dtype)
        with self.device.active():
            download(out, array.ctypes.data)
        return out

    def fetch_small(self, array: Array) -> Array:
        assert array.nbytes <= _SMALL_BYTES
        with self.device.active():
            self._copies.download(self._staging.place, array.ctypes.data, array.nbytes)
            self._copies.wait()
        found = self._staging.bytes()[: array.nbytes]
        return np.array(found.view(array.dtype).reshape(array.shape))

    def copy(self, to: Array, source: Array) -> None:
        with self.device.active():
            self._copies.wait()  # an earlier copy must not overwrite it
            self._launches.copy(to.ctypes.data, source.ctypes.data, source.nbytes)

    def bind_launch(self, kernel: AnyKernel, arguments: Mapping[str, Any]) -> Callable[[], Wait]:
        assert not isinstance(kernel, LoadedThreadKernel)
        step, is_over = kernel.bind(**arguments), kernel.has_ended

        def launch() -> Wait:
            with self.device.active():
                self._copies.wait()  # for the inputs
            number = step(self._launches.handle, self.dependent)
            return lambda: self._wait(lambda: is_over(number))

        return launch

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Polls, because the stream does not notify the host. A lost device is an error."""
        last_check = time.monotonic()
        while not is_over():
            time.sleep(_POLL_S)
            if time.monotonic() - last_check < _DEVICE_CHECK_S:
                continue
            with self.device.active():
                if self._launches.is_idle() and not is_over():
                    raise DeviceFailed("a launch has ended, but its workers have not")
            last_check = time.monotonic()

    def close(self) -> None:
        self._close()

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        with self.device.active():
            count = int(np.prod(shape, dtype=np.int64))
            block = DeviceBlock(max(1, count * np.dtype(dtype).itemsize))
        self._blocks.append(block)
        found: Any = adopt({"": block})[""]
        return np.asanyarray(found.view(dtype).reshape(shape))


def _pieces(x: Array) -> Iterator[tuple[int, Array]]:
    """(offset, bytes) of an array in pieces, because it may be a mapped file."""
    flat = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    for at in range(0, flat.nbytes, _COPY_BYTES):
        yield at, flat[at : at + _COPY_BYTES]


def _no_wait() -> None:
    """The launch is over already."""


def _free(
    device: Device, blocks: list[DeviceBlock], held: list[PinnedHostBuffer | CudaStream]
) -> None:
    with suppress(DeviceFailed), device.active():  # a lost device has nothing to give back
        call("cuCtxSynchronize")
        for block in blocks:
            block.buffer.free()
        for each in held:
            each.free()
    blocks.clear()
    held.clear()
