"""libcuda in Python: memory is the host's, a launch is a function that a test gives. What the run
time asks of the driver, and in which order, can then be tested without a device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from eventtensor.codegen.cuda.abi import SHARED
from eventtensor.runtime.cuda import driver as cuda_driver
from eventtensor.runtime.cuda.driver import MAJOR, MINOR, MULTIPROCESSORS, SHARED_BYTES
from eventtensor.runtime.cuda.launch import LaunchAttribute, LaunchConfig

ATTRIBUTES = {MAJOR: 9, MINOR: 0, MULTIPROCESSORS: 132, SHARED_BYTES: 232448}
ERRORS = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 100: "CUDA_ERROR_NO_DEVICE"}


@contextmanager
def installed(library: Callable[[], Any]) -> Iterator[None]:
    """The run time finds the driver by `library`; what it has found before is forgotten."""
    cached = (cuda_driver.library, cuda_driver.function, cuda_driver.device)
    for each in cached:
        each.cache_clear()
    try:
        with patch.object(cuda_driver, "library", lambda quick=False: library()):
            yield
    finally:
        for each in cached:
            each.cache_clear()


class Launched:
    """One launch as the driver sees it: configuration, struct Shared, the words of Launch, and
    where its maps lie."""

    def __init__(self, config: int, params: int, rank: int, words: int, maps: bool) -> None:
        self.config = LaunchConfig.from_buffer_copy(
            ctypes.string_at(config, ctypes.sizeof(LaunchConfig))
        )
        kind = LaunchAttribute * self.config.attribute_count
        at = (ctypes.c_void_p * (3 if maps else 2)).from_address(params)
        self.attributes = [
            (a.id, a.value) for a in kind.from_address(self.config.attributes)
        ]
        dtype = SHARED.dtype(rank)
        self.shared = np.frombuffer(ctypes.string_at(at[0], dtype.itemsize), dtype)[0]
        self.words = np.frombuffer(ctypes.string_at(at[1], 8 * words), np.int64).tolist()
        self.maps = at[2] if maps else None


class FakeDriver:
    """`answers` makes a function refuse with a status; `run` is what a launch does, `run_plain`
    what a kernel without tasks does (entry, addresses of its arguments); `log` has the functions
    called since it was cleared, `copies` those that do not wait, with their streams. A kernel
    with `maps` has a third argument."""

    def __init__(self, rank: int = 2, words: int = 4, devices: int = 2) -> None:
        self.rank, self.words, self.devices, self.maps = rank, words, devices, False
        self.answers: dict[str, Callable[..., int]] = {}
        self.run: Callable[[Launched], None] = lambda _: None
        self.run_plain: Callable[[str, Any], None] = lambda entry, places: None
        self.entry = ""
        self.log: list[str] = []
        self.launches: list[Launched] = []
        self.memory: dict[int, Any] = {}
        self.freed: list[Any] = []  # kept, so that no address comes twice
        self.streams: list[int] = []  # flags of each; the first has number 1
        self.late: set[int] = set()  # streams whose copies land when they are waited for
        self._waiting: list[tuple[int, int, int]] = []
        self.copies: list[tuple[str, int | None]] = []
        self.memsets: list[tuple[int, int, int]] = []
        self.context: int | None = None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*args: Any) -> int:
            self.log.append(name)
            refusal = self.answers.get(name)
            if refusal is not None and (status := refusal(*args)) != 0:
                return status
            found = getattr(self, "_" + name, None)
            if found is not None:
                found(*args)
            return 0

        return function

    # ---- the functions that do something ----------------------------------------------------

    def _cuGetErrorName(self, status: int, out: Any) -> None:
        out._obj.value = ERRORS[status].encode()

    def _cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = self.devices

    def _cuDeviceGet(self, out: Any, index: int) -> None:
        out._obj.value = index

    def _cuDeviceGetAttribute(self, out: Any, kind: int, _: int) -> None:
        out._obj.value = ATTRIBUTES.get(kind, 1)

    def _cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        out._obj.value = 1000 + device

    def _cuCtxSetCurrent(self, context: int) -> None:
        self.context = context

    def _cuCtxGetCurrent(self, out: Any) -> None:
        out._obj.value = self.context

    def _cuModuleLoadData(self, out: Any, _: bytes) -> None:
        out._obj.value = 7

    def _cuModuleGetFunction(self, out: Any, _: int, name: bytes) -> None:
        out._obj.value, self.entry = 8, name.decode()

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, out: Any, *_: Any) -> None:
        out._obj.value = 1

    def _cuMemAlloc_v2(self, out: Any, size: int) -> None:
        memory = ctypes.create_string_buffer(b"\xaa" * size, size)
        self.memory[ctypes.addressof(memory)] = memory
        out._obj.value = ctypes.addressof(memory)

    def _cuMemHostAlloc(self, out: Any, size: int, _: int) -> None:
        self._cuMemAlloc_v2(out, size)

    def _cuMemHostGetDevicePointer_v2(self, out: Any, place: int, _: int) -> None:
        out._obj.value = place

    def _cuMemFree_v2(self, address: int) -> None:
        self.freed.append(self.memory.pop(address))

    def _cuMemFreeHost(self, address: int) -> None:
        self._cuMemFree_v2(address)

    def _cuMemsetD8_v2(self, address: int, value: int, size: int) -> None:
        ctypes.memset(address, value, size)

    def _cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> None:
        self.memsets.append((address, size, stream))
        ctypes.memset(address, value, size)

    def _cuMemcpyHtoD_v2(self, address: int, host: int, size: int) -> None:
        ctypes.memmove(address, host, size)

    def _cuMemcpyDtoH_v2(self, host: int, address: int, size: int) -> None:
        ctypes.memmove(host, address, size)

    def _cuMemcpyHtoDAsync_v2(self, address: int, host: int, size: int, on: int | None) -> None:
        self._copy("HtoD", address, host, size, on)

    def _cuMemcpyDtoHAsync_v2(self, host: int, address: int, size: int, on: int | None) -> None:
        self._copy("DtoH", host, address, size, on)

    def _cuMemcpyDtoDAsync_v2(self, to: int, address: int, size: int, on: int | None) -> None:
        self._copy("DtoD", to, address, size, on)

    def _copy(self, way: str, to: int, origin: int, size: int, stream: int | None) -> None:
        self.copies.append((way, stream))
        if stream in self.late:
            self._waiting.append((to, origin, size))
        else:
            ctypes.memmove(to, origin, size)

    def _cuStreamQuery(self, stream: int) -> None:
        self._cuStreamSynchronize(stream)

    def _cuStreamSynchronize(self, stream: int) -> None:
        if stream in self.late:
            for copy in self._waiting:
                ctypes.memmove(*copy)
            self._waiting.clear()

    def _cuTensorMapEncodeTiled(
        self, out: Any, kind: int, rank: int, address: Any, sizes: Any, strides: Any, box: Any,
        steps: Any, *how: int,
    ) -> None:
        """As the emulator takes it (emulator/copies.h)."""
        if rank == 3:
            assert (kind, tuple(steps), how) == (4, (1, 1, 1), (0, 0, 3, 0))
            assert out.value % 64 == address.value % 16 == strides[0] % 16 == strides[1] % 16 == 0
            assert box[0] == sizes[0] <= 256 and min(sizes) > 0 and max(box) <= 256
            words = (0x70616D666F736E75, address.value, *sizes, *strides, *box)
            (ctypes.c_uint64 * 16).from_address(out.value)[: len(words)] = words
            return
        assert (kind, rank, tuple(steps), how) == (1, 2, (1, 1), (0, 3, 2, 0))
        assert out.value % 64 == address.value % 16 == strides[0] % 16 == 0 < min(sizes)
        assert box[0] * 2 == 128 and 0 < box[1] <= 256
        words = (0x70616D6F66786F62, address.value, *sizes, strides[0], *box)
        (ctypes.c_uint64 * 16).from_address(out.value)[: len(words)] = words

    def _cuStreamCreate(self, out: Any, flags: int) -> None:
        self.streams.append(flags)
        out._obj.value = len(self.streams)

    def _cuLaunchKernelEx(self, config: Any, _: Any, params: Any, __: None) -> None:
        place = config.value if isinstance(config, ctypes.c_void_p) else \
            ctypes.addressof(config._obj)
        if LaunchConfig.from_address(place).attribute_count == 0:
            self.run_plain(self.entry, ctypes.cast(params, ctypes.POINTER(ctypes.c_void_p)))
            return
        launched = Launched(place, params.value, self.rank, self.words, self.maps)
        self.launches.append(launched)
        self.run(launched)

    def holds(self, address: int) -> bool:
        """True if the address lies in memory that is allocated."""
        return any(a <= address < a + len(m) for a, m in self.memory.items())
