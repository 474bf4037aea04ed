"""Raw kernels, without tasks: compiled from a source, launched over blocks, in order with
copies."""

from __future__ import annotations

import ctypes
import weakref
from contextlib import suppress
from ctypes import c_void_p
from typing import Any

from ...config import Environment
from ...errors import DeviceFailed
from .cuda_build import build_cubin
from .driver import Device, call, call_with_result
from .launch import LaunchConfig


class RawKernels:
    """The entries of one source."""

    def __init__(self, device: Device, source: str, name: str, env: Environment) -> None:
        built = build_cubin(source, name, device.target.architecture, env)
        self.device = device
        with device.active():
            self._module = int(
                call_with_result("cuModuleLoadData", c_void_p, built.path.read_bytes())
            )
        self._close = weakref.finalize(self, _unload, device, self._module)
        self._close.atexit = False  # the driver frees everything when the process ends

    def launch(self, entry: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Launch an entry. Arguments are ctypes values."""
        places = (c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        config = LaunchConfig(blocks, 1, 1, threads, 1, 1, 0, None, None, 0)
        with self.device.active():
            found = call_with_result("cuModuleGetFunction", c_void_p, self._module, entry.encode())
            call("cuLaunchKernelEx", ctypes.byref(config), found, ctypes.byref(places), None)

    def close(self) -> None:
        """Wait for launches, and unload the code."""
        self._close()


def _unload(device: Device, module: int) -> None:
    with suppress(DeviceFailed), device.active():  # a lost device has no memory to free
        call("cuCtxSynchronize")
        call("cuModuleUnload", module)
