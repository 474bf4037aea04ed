"""The CUDA driver, through cuda-bindings, imported only when a kernel is made for it.

Every refusal of the driver is a user error with the driver's own words.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import DeviceFailed, NoDevice
from ..target import CudaTarget


@cache
def bindings(name: str) -> Any:
    """A module of cuda.bindings: driver or nvrtc."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as e:
        raise NoDevice(f"cuda.bindings.{name} cannot be imported: {e}") from e


def call(function: str, *args: Any) -> Any:
    """A driver call by name: its results, or an error that names it."""
    driver = bindings("driver")
    try:
        status, *results = getattr(driver, function)(*args)
    except RuntimeError as e:  # the library itself is not there
        raise NoDevice(f"the CUDA driver is not there: {e}") from e
    if int(status) != 0:
        raise _refused(driver, function, status)
    return results[0] if len(results) == 1 else results


def _refused(driver: Any, function: str, status: Any) -> Exception:
    name = getattr(status, "name", str(status))
    if function in ("cuInit", "cuDeviceGet") or "NO_DEVICE" in name:
        return NoDevice(f"{function} answers {name}")
    return DeviceFailed(f"{function} answers {name}")


@dataclass(frozen=True)
class Device:
    """The first CUDA device with its primary context, which torch and cupy use too."""

    handle: Any
    context: Any
    target: CudaTarget

    def activate(self) -> None:
        call("cuCtxSetCurrent", self.context)


@cache
def device() -> Device:
    driver = bindings("driver")
    call("cuInit", 0)
    handle = call("cuDeviceGet", 0)
    kinds = driver.CUdevice_attribute

    def attribute(name: str) -> int:
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call("cuDeviceGetAttribute", kind, handle))

    if not attribute("COOPERATIVE_LAUNCH"):
        raise NoDevice("the device cannot launch cooperative kernels")
    major = attribute("COMPUTE_CAPABILITY_MAJOR")
    minor = attribute("COMPUTE_CAPABILITY_MINOR")
    suffix = "a" if major >= 9 else ""  # the architecture's own instructions
    target = CudaTarget(
        f"sm_{major}{minor}{suffix}", attribute("MULTIPROCESSOR_COUNT"),
        attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )
    return Device(handle, call("cuDevicePrimaryCtxRetain", handle), target)


class Buffer:
    """Device memory that grows on demand."""

    def __init__(self) -> None:
        self.address, self.size = 0, 0

    def reserve(self, size: int) -> None:
        """At least `size` bytes; what was there is lost if it grows."""
        if size <= self.size and self.address:
            return
        self.free()
        wanted = max(size, 256)
        self.address = int(call("cuMemAlloc", wanted))
        self.size = wanted

    def clear(self, value: int = 0) -> None:
        if self.size:
            call("cuMemsetD8", self.address, value, self.size)

    def free(self) -> None:
        if self.address:
            call("cuMemFree", self.address)
        self.address, self.size = 0, 0


def upload(address: int, host: Any) -> None:
    """A NumPy array, whole."""
    if host.nbytes:
        call("cuMemcpyHtoD", address, host.ctypes.data, host.nbytes)


def download(host: Any, address: int) -> None:
    if host.nbytes:
        call("cuMemcpyDtoH", host.ctypes.data, address, host.nbytes)
