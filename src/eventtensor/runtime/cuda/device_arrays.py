"""Arrays in device memory as arguments: those of torch, cupy and others.

A `DeviceArray` has the shape, dtype and address of such an array, so runtime.arguments.bind checks
it like any other. The host must not touch its elements.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import WrongDType
from ...ir.tensor import DType
from .driver import download

Array = npt.NDArray[Any]


class DeviceArray(np.ndarray[Any, Any]):
    """An array on the device. `owner` keeps its memory alive."""

    owner: object

    @property
    def address(self) -> int:
        return int(self.ctypes.data)


def adopt(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments, with each array on a device as a DeviceArray."""
    return {name: _as_device_array(x) for name, x in arguments.items()}


def _as_device_array(x: object) -> object:
    if isinstance(x, np.ndarray):
        return x
    if getattr(x, "is_cuda", False):
        return _from_torch(x)
    found = getattr(x, "__cuda_array_interface__", None)
    if found is None:
        return x
    data, read_only = found["data"]
    dtype = np.dtype(found["typestr"])
    return _view(data, found["shape"], dtype, found.get("strides"), bool(read_only), x)


def _from_torch(x: Any) -> DeviceArray:
    """Torch has no array interface for bf16 and for tensors that need a gradient."""
    name = str(x.dtype).removeprefix("torch.")
    try:
        dtype = DType.bf16.numpy if name == "bfloat16" else np.dtype(name)
    except TypeError as e:
        raise WrongDType(f"an argument is {x.dtype}, which no tensor can be") from e
    strides = tuple(s * dtype.itemsize for s in x.stride())
    return _view(x.data_ptr(), tuple(x.shape), dtype, strides, False, x)


def _view(
    address: int, shape: tuple[int, ...], dtype: np.dtype[Any],
    strides: tuple[int, ...] | None, read_only: bool, owner: object,
) -> DeviceArray:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if strides is not None:  # the last byte that the strides reach
        steps = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        size = max(size, steps + dtype.itemsize) if size else 0
    memory = memoryview((ctypes.c_char * size).from_address(address)) if size else bytearray(1)
    found = DeviceArray(shape, dtype, memory, 0, strides)
    found.owner = owner
    found.flags.writeable = not read_only
    return found


def on_host(x: Array) -> Array:
    """The array, or a copy of a device array in host memory."""
    if not isinstance(x, DeviceArray):
        return x
    copy = np.empty(x.shape, x.dtype)
    download(copy, x.address)
    return copy
