"""Bound launches: a kernel with packed arguments.

A call is one call of the driver on any stream. It does not allocate, copy or wait, so a CUDA graph
can capture it.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int, c_uint, c_void_p
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import BadStream, KernelClosed
from .driver import Device, call, driver_error, error_name, function

_COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION = 2, 6  # CUlaunchAttributeID


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute. Its value is a union of 64 bytes, of which an int is used."""

    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_int), ("rest", c_char * 60))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid_x", c_uint), ("grid_y", c_uint), ("grid_z", c_uint), ("block_x", c_uint),
        ("block_y", c_uint), ("block_z", c_uint), ("shared_bytes", c_uint),
        ("stream", c_void_p), ("attributes", c_void_p), ("attribute_count", c_uint),
    )


class LaunchShape:
    """The shape of a launch: blocks, threads of each, bytes of dynamic shared memory."""

    def __init__(self, blocks: int, threads: int, shared_bytes: int) -> None:
        self.blocks, self.threads, self.shared_bytes = blocks, threads, shared_bytes
        numbers = (_COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION)
        self._attributes = (LaunchAttribute * 2)(*(LaunchAttribute(n, 0, 1) for n in numbers))

    def config(self, stream: int, dependent: bool) -> LaunchConfig:
        return LaunchConfig(
            self.blocks, 1, 1, self.threads, 1, 1, self.shared_bytes, stream,
            ctypes.addressof(self._attributes), 2 if dependent else 1,
        )


class Owner(Protocol):
    """The kernel of a bound launch. `refused` is what the driver refused, or empty. `launched` is
    the number of the last launch."""

    closed: bool
    refused: str
    launched: int


def stream_handle(stream: object) -> int:
    """The CUstream of None (the legacy default stream), an int, or a stream of any library."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):  # torch, cupy
        found = getattr(stream, name, None)
        if isinstance(found, int):
            return found
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise BadStream(f"{stream!r} is no CUDA stream")
    return int((protocol() if callable(protocol) else protocol)[1])


class BoundLaunch:
    """A kernel bound to its arguments.

    `step(stream)` enqueues one launch and returns its number, for the kernel's `has_ended`. The
    kernel's `synchronize`, `check` and `has_ended` raise errors of launches. Launches of one kernel
    share its cells, so they must not overlap: put them on one stream, or order the streams by
    events. With `dependent` the launch may start before the previous one of the stream has ended,
    up to the kernel's own `griddepcontrol.wait` (programmatic dependent launch). A bound launch
    keeps its arrays alive. A captured graph keeps neither it nor the kernel; its launches have the
    number of the capture."""

    def __init__(
        self,
        owner: Owner,
        device: Device,
        kernel: int,
        shape: LaunchShape,
        packed: tuple[npt.NDArray[Any], ...],
        zeroed: tuple[tuple[int, int], ...],
        keep: object,
    ) -> None:
        self._owner, self._device, self._shape, self._keep = owner, device, shape, keep
        self._zeroed = zeroed  # (address, bytes) of memory that every launch clears
        self._packed = packed
        self._number = packed[0]["number"]  # the driver copies it when it launches
        addresses = (c_void_p * len(packed))(*(p.ctypes.data for p in packed))
        self._addresses = addresses
        self._kernel, self._params = c_void_p(kernel), c_void_p(ctypes.addressof(addresses))
        self._configs: dict[tuple[int, bool], tuple[c_void_p, LaunchConfig]] = {}
        self._launch, self._current = function("cuLaunchKernelEx"), function("cuCtxGetCurrent")

    def __call__(self, stream: object = None, dependent: bool = False) -> int:
        key = stream_handle(stream), dependent
        current = c_void_p()
        self._current(ctypes.byref(current))
        if current.value == self._device.context:
            return self._enqueue(key)
        with self._device.active():
            return self._enqueue(key)

    def _enqueue(self, key: tuple[int, bool]) -> int:
        if self._owner.closed:
            raise KernelClosed("the kernel of this step is closed")
        for address, size in self._zeroed:
            call("cuMemsetD8Async", address, 0, size, key[0])
        ready = self._configs.get(key) or self._configure(key)
        number = self._number[0] = self._owner.launched + 1
        status = self._launch(ready[0], self._kernel, self._params, None)
        if status != 0:
            self._retry_without_attribute(key, status)
        self._owner.launched = number
        return number

    def _configure(self, key: tuple[int, bool]) -> tuple[c_void_p, LaunchConfig]:
        config = self._shape.config(key[0], key[1] and not self._owner.refused)
        self._configs[key] = c_void_p(ctypes.addressof(config)), config
        return self._configs[key]

    def _retry_without_attribute(self, key: tuple[int, bool], status: int) -> None:
        """Launch again without the attribute that the driver refuses, now and later."""
        stream, dependent = key
        if not dependent:
            raise driver_error("cuLaunchKernelEx", status)
        plain = self._shape.config(stream, False)
        second = self._launch(ctypes.byref(plain), self._kernel, self._params, None)
        if second != 0:
            raise driver_error("cuLaunchKernelEx", second)
        self._owner.refused = (
            "cuLaunchKernelEx answers " + error_name(status)
            + " to cooperative with programmatic stream serialization"
        )
        self._configs.pop(key)


def pack_record(record: dict[str, int], dtype: np.dtype[np.void]) -> npt.NDArray[Any]:
    """One struct from all of its fields."""
    assert dtype.names is not None
    out = np.zeros(1, dtype)
    for name in dtype.names:
        out[name] = record[name]
    return out
