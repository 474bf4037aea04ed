"""The CUDA driver: libcuda.so.1 through ctypes, loaded only when a kernel is made for a GPU.

Every refusal of the driver is a user error with the driver's own words. Names and numbers are those
of cuda.h; `bindings` is for NVRTC (cuda_build.py) alone.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...errors import BadOption, DeviceFailed, NoDevice, OutOfMemory
from ...targets.devices import device_target
from ...targets.target import CudaTarget

LIBRARY = "libcuda.so.1"

# Where cuda.h has several versions of a function, its #define picks the symbol given here.
_SYMBOLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "cuInit": ("cuInit", (c_uint,)),
    "cuGetErrorName": ("cuGetErrorName", (c_int, c_void_p)),
    "cuDeviceGet": ("cuDeviceGet", (c_void_p, c_int)),
    "cuDeviceGetCount": ("cuDeviceGetCount", (c_void_p,)),
    "cuDeviceGetAttribute": ("cuDeviceGetAttribute", (c_void_p, c_int, c_int)),
    "cuDevicePrimaryCtxRetain": ("cuDevicePrimaryCtxRetain", (c_void_p, c_int)),
    "cuCtxSetCurrent": ("cuCtxSetCurrent", (c_void_p,)),
    "cuCtxGetCurrent": ("cuCtxGetCurrent", (c_void_p,)),
    "cuCtxSynchronize": ("cuCtxSynchronize", ()),
    "cuModuleLoadData": ("cuModuleLoadData", (c_void_p, c_char_p)),
    "cuModuleUnload": ("cuModuleUnload", (c_void_p,)),
    "cuModuleGetFunction": ("cuModuleGetFunction", (c_void_p, c_void_p, c_char_p)),
    "cuFuncSetAttribute": ("cuFuncSetAttribute", (c_void_p, c_int, c_int)),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        (c_void_p, c_void_p, c_int, c_size_t),
    ),
    "cuMemAlloc": ("cuMemAlloc_v2", (c_void_p, c_size_t)),
    "cuMemGetInfo": ("cuMemGetInfo_v2", (c_void_p, c_void_p)),
    "cuMemFree": ("cuMemFree_v2", (c_uint64,)),
    "cuMemHostAlloc": ("cuMemHostAlloc", (c_void_p, c_size_t, c_uint)),
    "cuMemHostGetDevicePointer": ("cuMemHostGetDevicePointer_v2", (c_void_p, c_void_p, c_uint)),
    "cuMemFreeHost": ("cuMemFreeHost", (c_void_p,)),
    "cuMemsetD8": ("cuMemsetD8_v2", (c_uint64, c_ubyte, c_size_t)),
    "cuMemsetD8Async": ("cuMemsetD8Async", (c_uint64, c_ubyte, c_size_t, c_void_p)),
    "cuMemcpyHtoD": ("cuMemcpyHtoD_v2", (c_uint64, c_void_p, c_size_t)),
    "cuMemcpyDtoH": ("cuMemcpyDtoH_v2", (c_void_p, c_uint64, c_size_t)),
    "cuMemcpyHtoDAsync": (
        "cuMemcpyHtoDAsync_v2",
        (c_uint64, c_void_p, c_size_t, c_void_p),
    ),
    "cuMemcpyDtoHAsync": (
        "cuMemcpyDtoHAsync_v2",
        (c_void_p, c_uint64, c_size_t, c_void_p),
    ),
    "cuMemcpyDtoDAsync": (
        "cuMemcpyDtoDAsync_v2",
        (c_uint64, c_uint64, c_size_t, c_void_p),
    ),
    "cuTensorMapEncodeTiled": (
        "cuTensorMapEncodeTiled",
        (c_void_p, c_int, c_uint, c_void_p, *(c_void_p,) * 4, *(c_int,) * 4),
    ),
    "cuStreamCreate": ("cuStreamCreate", (c_void_p, c_uint)),
    "cuStreamQuery": ("cuStreamQuery", (c_void_p,)),
    "cuStreamSynchronize": ("cuStreamSynchronize", (c_void_p,)),
    "cuStreamDestroy": ("cuStreamDestroy_v2", (c_void_p,)),
    "cuLaunchKernelEx": ("cuLaunchKernelEx", (c_void_p, c_void_p, c_void_p, c_void_p)),
}

# CUdevice_attribute, CUfunction_attribute, the flag of cuMemHostAlloc and that of cuStreamCreate.
COOPERATIVE_LAUNCH, MULTIPROCESSORS, SHARED_BYTES, MAJOR, MINOR = 95, 16, 97, 75, 76
MAX_DYNAMIC_SHARED_BYTES = 8
_DEVICE_MAP = 2
_NON_BLOCKING = 1
_NOT_READY = 600  # CUresult
_LOOKS = 50


@cache
def bindings(name: str) -> Any:
    """A module of cuda.bindings."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as e:
        raise NoDevice(
            f"cuda.bindings.{name} cannot be imported: {e}", hint="pip install 'eventtensor[cuda]'"
        ) from e


# What is called for each launch and only enqueues or looks. To let other threads run meanwhile, as
# all other calls do, would cost more than it takes: they need not give the interpreter back soon.
_KEEP_GIL = frozenset(
    (
        "cuCtxSetCurrent",
        "cuCtxGetCurrent",
        "cuMemcpyHtoDAsync",
        "cuMemcpyDtoHAsync",
        "cuMemcpyDtoDAsync",
        "cuStreamQuery",
        "cuLaunchKernelEx",
    )
)


@cache
def library(keep_gil: bool = False) -> ctypes.CDLL:
    """The driver; with `keep_gil` its functions keep the interpreter lock."""
    try:
        return ctypes.PyDLL(LIBRARY) if keep_gil else ctypes.CDLL(LIBRARY)
    except OSError as e:
        raise NoDevice(f"the CUDA driver is not there: {e}") from e


@cache
def function(name: str) -> Any:
    """A function of the driver, which gives a status."""
    symbol, types = _SYMBOLS[name]
    try:
        found = getattr(library(name in _KEEP_GIL), symbol)
    except AttributeError as e:
        raise NoDevice(
            f"the CUDA driver has no {symbol}", hint="install a driver for CUDA 12 or later"
        ) from e
    found.argtypes, found.restype = types, c_int
    return found


def call(name: str, *args: Any) -> None:
    """A driver call; its refusal is an error that names it."""
    status = function(name)(*args)
    if status != 0:
        raise driver_error(name, status)


def call_with_result(name: str, kind: type[Any], *args: Any) -> Any:
    """What a driver call writes to its first argument."""
    found = kind()
    call(name, byref(found), *args)
    return found.value


def error_name(status: int) -> str:
    text = c_char_p()
    if function("cuGetErrorName")(status, byref(text)) != 0 or text.value is None:
        return f"error {status}"
    return text.value.decode()


def driver_error(name: str, status: int) -> Exception:
    text = error_name(status)
    if name in ("cuInit", "cuDeviceGet", "cuDeviceGetCount") or "NO_DEVICE" in text:
        return NoDevice(f"{name} answers {text}")
    return DeviceFailed(f"{name} answers {text}")


@dataclass(frozen=True)
class Device:
    """A CUDA device with its primary context, which torch and cupy use too."""

    index: int
    context: int
    target: CudaTarget

    def activate(self) -> None:
        call("cuCtxSetCurrent", self.context)

    @contextmanager
    def active(self) -> Iterator[None]:
        """This device's context for a while; a thread that works on another one gets it back."""
        before = call_with_result("cuCtxGetCurrent", c_void_p)
        self.activate()
        try:
            yield
        finally:
            if before not in (None, self.context):
                call("cuCtxSetCurrent", before)


@cache
def device(index: int = 0) -> Device:
    if not isinstance(index, int):
        raise BadOption(f"device is {index!r}", hint="a GPU of this machine goes by its number")
    call("cuInit", 0)
    count = int(call_with_result("cuDeviceGetCount", c_int))
    if count == 0:
        raise NoDevice("there is no CUDA device")
    if not 0 <= index < count:
        raise BadOption(f"device is {index}, but there are {count}", hint="devices count from 0")
    handle = int(call_with_result("cuDeviceGet", c_int, index))

    def attribute(kind: int) -> int:
        return int(call_with_result("cuDeviceGetAttribute", c_int, kind, handle))

    if not attribute(COOPERATIVE_LAUNCH):
        raise NoDevice("the device cannot launch cooperative kernels")
    target = device_target(
        attribute(MAJOR), attribute(MINOR), attribute(MULTIPROCESSORS), attribute(SHARED_BYTES)
    )
    return Device(
        index, int(call_with_result("cuDevicePrimaryCtxRetain", c_void_p, handle)), target
    )


class DeviceBuffer:
    """Device memory that grows on demand."""

    def __init__(self) -> None:
        self.address, self.size = 0, 0

    def reserve(self, size: int) -> None:
        """At least `size` bytes; what was there is lost if it grows."""
        if size <= self.size and self.address:
            return
        self.free()
        wanted = max(size, 256)
        try:
            self.address = int(call_with_result("cuMemAlloc", c_uint64, wanted))
        except DeviceFailed as e:
            if "OUT_OF_MEMORY" not in e.message:
                raise
            raise OutOfMemory(f"{e.message}: the GPU has no {wanted} bytes left") from None
        self.size = wanted

    def clear(self, value: int = 0) -> None:
        if self.size:
            call("cuMemsetD8", self.address, value, self.size)

    def free(self) -> None:
        if self.address:
            call("cuMemFree", self.address)
        self.address, self.size = 0, 0


class PinnedHostBuffer:
    """Host memory, cleared, that the device writes to as `address`; the host sees it at `place`."""

    def __init__(self, size: int) -> None:
        self.place = int(call_with_result("cuMemHostAlloc", c_void_p, size, _DEVICE_MAP))
        ctypes.memset(self.place, 0, size)
        self.address = int(call_with_result("cuMemHostGetDevicePointer", c_uint64, self.place, 0))
        self.size = size

    def bytes(self) -> Any:
        """As a NumPy array, which ends with the memory."""
        return np.ctypeslib.as_array((c_ubyte * self.size).from_address(self.place))

    def free(self) -> None:
        if self.place:
            call("cuMemFreeHost", self.place)
        self.place = self.address = 0


class CudaStream:
    """Of our own. With `aside` it is in no order with the legacy default stream, so the host waits;
    else each waits for what the other has when something is put into it."""

    def __init__(self, aside: bool) -> None:
        self.handle = int(
            call_with_result("cuStreamCreate", c_void_p, _NON_BLOCKING if aside else 0)
        )

    def upload(self, address: int, pinned: int, size: int) -> None:
        """Begins it, like all copies of a stream."""
        call("cuMemcpyHtoDAsync", address, pinned, size, self.handle)

    def download(self, pinned: int, address: int, size: int) -> None:
        call("cuMemcpyDtoHAsync", pinned, address, size, self.handle)

    def copy(self, to: int, address: int, size: int) -> None:
        call("cuMemcpyDtoDAsync", to, address, size, self.handle)

    def wait(self) -> None:
        """A small copy takes some ten looks."""
        if not any(self.is_idle() for _ in range(_LOOKS)):
            call("cuStreamSynchronize", self.handle)

    def is_idle(self) -> bool:
        """Whether it has come to its end; raises if the device is lost."""
        status = function("cuStreamQuery")(self.handle)
        if status not in (0, _NOT_READY):
            raise driver_error("cuStreamQuery", status)
        return bool(status == 0)

    def free(self) -> None:
        if self.handle:
            call("cuStreamDestroy", self.handle)
        self.handle = 0


def upload(address: int, host: Any) -> None:
    """A NumPy array, whole."""
    if host.nbytes:
        call("cuMemcpyHtoD", address, host.ctypes.data, host.nbytes)


def download(host: Any, address: int) -> None:
    if host.nbytes:
        call("cuMemcpyDtoH", host.ctypes.data, address, host.nbytes)
