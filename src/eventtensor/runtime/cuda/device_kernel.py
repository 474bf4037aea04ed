"""A built kernel on a device: it binds, launches, waits and raises errors of launches.

It needs NumPy and the driver alone. Dims may change between launches. Launches of one kernel must
not overlap (launch.BoundLaunch). After a failed launch later ones return at once, until the host
has raised the error (`synchronize`, `check`, or the next call).
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ctypes import c_int, c_void_p
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...codegen import abi
from ...codegen.cuda.abi import PROGRESS, SHARED
from ...errors import (
    BadOption,
    DeviceFailed,
    HostArgument,
    KernelClosed,
    Misaligned,
    NoTrace,
    OutOfMemory,
)
from ...ir.allocate import at_dims
from ...ir.tensor import Role, Tensor
from ...ir.walk import evaluate
from ..failure import launch_error
from ..launch_record import LaunchRecord
from .device_arrays import DeviceArray, adopt
from .device_memory import DeviceMemory, ReservedMemory
from .driver import (
    MAX_DYNAMIC_SHARED_BYTES,
    Device,
    DeviceBuffer,
    call,
    call_with_result,
    download,
    upload,
)
from .image import Image
from .launch import BoundLaunch, LaunchShape, pack_record
from .tensor_maps import encode_tensor_maps

Array = npt.NDArray[Any]
TRACE_RECORDS = 4096  # of one launch and worker
_PLAIN_CALL = 0  # the number of the binding of a plain call; others count from 1
_MAX_BINDINGS = 16  # bindings that are kept without their launches, which may be running


@dataclass(frozen=True)
class Binding:
    """The dims and the address of every tensor of a bound launch. The bound launch keeps it alive,
    so that repeated bindings of a kernel use no memory."""

    dims: Mapping[str, int]
    places: Mapping[str, int]


class LaunchTimes(NamedTuple):
    """The times of an ended launch, in ns of the GPU's clock. Dims are empty if the bound launch is
    gone."""

    number: int
    dims: Mapping[str, int]
    began: int
    ended: int


class DeviceKernel:
    """A kernel on a device. `launch` and `bind` take the result of runtime.arguments.bind, whose
    arguments come from `adopt`."""

    adopt = staticmethod(adopt)

    def __init__(
        self, image: Image, device: Device, workers: int = 0, wait_limit_s: float = 5.0,
        trace_capacity: int = TRACE_RECORDS,
    ) -> None:
        self.image, self.device, self.source = image, device, image.source
        self.refused, self.closed, self.launched = "", False, 0
        self._limit_ns = int(wait_limit_s * 1e9)
        self._bindings: weakref.WeakValueDictionary[int, Binding] = weakref.WeakValueDictionary()
        self._latest: deque[Binding] = deque(maxlen=_MAX_BINDINGS)
        self._last_binding = Binding({}, {})  # by the last plain call
        self._numbers = itertools.count(_PLAIN_CALL + 1)
        self._lock = threading.Lock()
        with device.active():
            module = int(call_with_result("cuModuleLoadData", c_void_p, image.cubin))
            entry = image.entry.encode()
            self._function = int(call_with_result("cuModuleGetFunction", c_void_p, module, entry))
            self.workers = self._coresident_workers(workers)
            self._memory = DeviceMemory(image, self.workers, trace_capacity)
        self._shape = LaunchShape(self.workers, image.threads, image.shared_bytes)
        self._release = weakref.finalize(self, _free, device, self._memory, module)
        self._release.atexit = False  # the driver frees everything when the process ends

    def _coresident_workers(self, wanted: int) -> int:
        """The number of workers. All must run at the same time, because they wait for each
        other."""
        image, target = self.image, self.device.target
        call("cuFuncSetAttribute", self._function, MAX_DYNAMIC_SHARED_BYTES, image.shared_bytes)
        query = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        each = int(
            call_with_result(query, c_int, self._function, image.threads, image.shared_bytes)
        )
        most = each * target.multiprocessors
        if most == 0:
            raise DeviceFailed("the kernel does not fit on a multiprocessor")
        if not 0 <= wanted <= most:
            raise BadOption(
                f"workers is {wanted}, but only 1 to {most} can run at the same time",
                hint="leave workers away: one for each multiprocessor",
            )
        return wanted or target.multiprocessors

    def close(self) -> None:
        """Wait for launches and free the device memory. A closed kernel cannot be launched, and
        graphs that captured its launches cannot be replayed."""
        with self._lock:
            self.closed = True
            self._release()

    # ---- launches --------------------------------------------------------------------------

    def bind(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> BoundLaunch:
        """A bound launch for arrays in device memory. Not allowed while a stream is captured."""
        for name, x in arrays.items():
            if not isinstance(x, DeviceArray):
                raise HostArgument(f"argument '{name}' is not in device memory")
        with self._lock, self.device.active():
            self._check_open()
            places = {n: x.address for n, x in arrays.items() if isinstance(x, DeviceArray)}
            return self._step(next(self._numbers), dims, places, tuple(arrays.values()))

    def launch(
        self, dims: Mapping[str, int], arrays: Mapping[str, Array], *, delay_seed: int = 0
    ) -> None:
        """Run once and wait, with arrays on the host or the device. Outputs and states are written
        in place. `delay_seed` (random sleeps) needs a debug build."""
        with self._lock, self.device.active():
            self._check_open()
            self._wait_and_check()  # launches share the cells, and the device copies of host arrays
            places = self._upload(arrays)
            step = self._step(_PLAIN_CALL, dims, places, tuple(arrays.values()), delay_seed)
            self._last_binding = self._bindings[_PLAIN_CALL]
            if self.image.debug:
                self._poison(dims)
            step()
            self._wait_and_check()
            self._fetch(arrays, places)

    def synchronize(self) -> None:
        """Wait for all launches, and raise their errors."""
        with self._lock, self.device.active():
            self._wait_and_check()

    def check(self) -> None:
        """Raise errors of ended launches. It reads host memory alone."""
        self._check_open()
        if self._memory.failed:
            self.synchronize()

    def has_ended(self, number: int) -> bool:
        """True if the launch of this number, and so all before it, have ended. It reads host memory
        alone, and raises errors of launches."""
        self.check()
        return self._memory.has_ended(number)

    def stamps(self, after: int = 0) -> list[LaunchTimes]:
        """The times of ended launches after this number, as far as they are kept."""
        return [
            LaunchTimes(
                int(x["number"]), self._dims(int(x["step"])), int(x["began"]), int(x["ended"])
            )
            for x in self._memory.read_stamps()
            if x["number"] > after
        ]

    def _dims(self, step: int) -> Mapping[str, int]:
        bound = self._bindings.get(step)
        return bound.dims if bound is not None else {}

    def _check_open(self) -> None:
        if self.closed:
            raise KernelClosed(f"kernel '{self.image.interface.name}' is closed")

    def _wait_and_check(self) -> None:
        self._check_open()
        call("cuCtxSynchronize")
        if not self._memory.failed:
            return
        report, control = self._memory.read_report(), self._memory.read_control()
        self._memory.reset()
        raise launch_error(self.image.interface, self._dims(int(control["step"])), report)

    # ---- one step --------------------------------------------------------------------------

    def _step(
        self,
        number: int,
        dims: Mapping[str, int],
        arguments: Mapping[str, int],
        keep: object,
        delay_seed: int = 0,
    ) -> BoundLaunch:
        image = self.image
        try:
            places = {**self._scratch(dims), **arguments}
            shared = self._shared(dims, number, delay_seed)
        except OutOfMemory as e:
            raise OutOfMemory(f"scratch and cells: {e.message}{at_dims(dims)}") from None
        for name in image.aligned:
            if places[name] % 16:
                raise Misaligned(f"argument '{name}' is streamed, and begins at {places[name]:#x}")
        bound = self._bindings[number] = Binding(dict(dims), places)
        self._latest.append(bound)
        sizes = [dims[d.name] for d in image.interface.dims] or [0]
        tensors = [places[t.name] for t in image.interface.tensors] or [0]
        zeroed = tuple(
            (places[t.name], size) for t in image.interface.tensors
            if t.name in image.zeroed and (size := _bytes(t, dims))
        )
        given: tuple[Array, ...] = (
            shared, np.array([*sizes, *tensors], np.int64),
        )
        if image.maps:
            held = {t.name: _bytes(t, dims) for t in image.interface.tensors}
            given = (*given, encode_tensor_maps(image.maps, places, held))
        return BoundLaunch(
            self, self.device, self._function, self._shape, given, zeroed, (keep, bound)
        )

    def _shared(self, dims: Mapping[str, int], number: int, delay_seed: int) -> Array:
        """The struct Shared: where everything of this launch lies."""
        memory, image = self._memory, self.image
        sets = memory.sets(evaluate(image.cells, dims))
        each = -(-evaluate(image.arena, dims) // 256) * 256
        words = memory.words.reserve(evaluate(image.word_bytes, dims))
        return pack_record(
            {
                "cells": sets.cells.address,
                "capacity": sets.capacity,
                "sets": sets.turn.address,
                "control": memory.control.address,
                "report": memory.report.address,
                "progress": memory.progress.address,
                "arena": memory.arena.reserve(each * self.workers).address,
                "arena_bytes": each,
                "words": words.address,
                "word_count": words.size // 8,
                "trace": memory.trace.address,
                "trace_capacity": memory.trace_capacity,
                "waited": sets.waited.address,
                "delay_seed": delay_seed,
                "step": number,
                "limit_ns": self._limit_ns,
                "stamps": memory.stamped.address,
                "number": 0,
            },
            SHARED.dtype(image.rank),
        )

    def _scratch(self, dims: Mapping[str, int]) -> dict[str, int]:
        image, memory = self.image, self._memory
        workspace = memory.workspace.reserve(evaluate(image.workspace, dims)).address
        words = memory.words.reserve(evaluate(image.word_bytes, dims)).address
        places = {b.tensor: workspace + evaluate(b.offset, dims) for b in image.buffers}
        places |= {b.tensor: words + evaluate(b.offset, dims) for b in image.words}
        for t in image.interface.tensors:  # a plan without memory placement
            if t.role is Role.scratch and t.name not in places:
                own = memory.scratch.setdefault(t.name, ReservedMemory())
                places[t.name] = own.reserve(_bytes(t, dims)).address
        return places

    # ---- a plain call ----------------------------------------------------------------------

    def _upload(self, arrays: Mapping[str, Array]) -> dict[str, int]:
        """Addresses on the device; host arrays are copied there."""
        places: dict[str, int] = {}
        for name, x in arrays.items():
            if isinstance(x, DeviceArray):
                places[name] = x.address
                continue
            buffer = self._memory.arguments.setdefault(name, DeviceBuffer())
            buffer.reserve(x.nbytes)
            upload(buffer.address, x)
            places[name] = buffer.address
        return places

    def _fetch(self, arrays: Mapping[str, Array], places: Mapping[str, int]) -> None:
        for t in self.image.interface.tensors:
            if t.role in (Role.output, Role.state) and not isinstance(arrays[t.name], DeviceArray):
                download(arrays[t.name], places[t.name])

    def _poison(self, dims: Mapping[str, int]) -> None:
        """Scratch and outputs hold nothing before a launch; in debug they show what was not
        written (all bits set: NaN in every float format)."""
        words = {b.tensor for b in self.image.words}
        for t in self.image.interface.tensors:
            size = _bytes(t, dims)
            if size and t.role in (Role.scratch, Role.output) and t.name not in words:
                call("cuMemsetD8", self._last_binding.places[t.name], 0xFF, size)

    def last_call(self, names: Iterable[str]) -> dict[str, Array]:
        """Tensors on the host, as the last plain call left them."""
        return self._values(self._last_binding, names)

    def _values(self, bound: Binding, names: Iterable[str]) -> dict[str, Array]:
        tensors = {t.name: t for t in self.image.interface.tensors}
        words = {b.tensor for b in self.image.words}
        with self.device.active():
            return {n: _value(tensors[n], bound, n in words) for n in names}

    # ---- traces ----------------------------------------------------------------------------

    def traced(self, names: Iterable[str] = ()) -> LaunchRecord:
        """What the last launch did, task by task, and these tensors as they are now."""
        if not self.image.trace:
            raise NoTrace(f"kernel '{self.image.interface.name}' keeps no trace")
        self.synchronize()
        with self.device.active():
            bound = self._bindings.get(int(self._memory.read_control()["step"]))
            if bound is None:
                raise NoTrace(f"kernel '{self.image.interface.name}' was not launched")
            records, lost = self._records()
        return LaunchRecord(bound.dims, records, self._values(bound, names), lost)

    def _records(self) -> tuple[Array, int]:
        """All records, oldest worker first, and how many did not fit."""
        memory, dtype = self._memory, abi.TRACE.dtype(self.image.rank)
        progress = np.zeros(self.workers, PROGRESS.dtype(self.image.rank))
        download(progress, memory.progress.address)
        parts, lost = [], 0
        for worker, made in enumerate(progress["traced"].tolist()):
            part = np.zeros(min(made, memory.trace_capacity), dtype)
            at = worker * memory.trace_capacity * dtype.itemsize
            download(part, memory.trace.address + at)
            parts.append(part)
            lost += made - len(part)
        return np.concatenate(parts), lost


def _value(t: Tensor, bound: Binding, words: bool) -> Array:
    shape = tuple(evaluate(s, bound.dims) for s in t.shape)
    if not words:
        found = np.empty(shape, t.dtype.numpy)
        download(found, bound.places[t.name])
        return found
    raw = np.empty((*shape, 2), f"u{t.dtype.tagged_bytes // 2}")  # a payload and its tag
    download(raw, bound.places[t.name])
    return raw[..., 0].astype(f"u{t.dtype.size}").view(t.dtype.numpy)


def _bytes(t: Tensor, dims: Mapping[str, int]) -> int:
    count = 1
    for s in t.shape:
        count *= evaluate(s, dims)
    return count * t.dtype.size


def _free(device: Device, memory: DeviceMemory, module: int) -> None:
    with suppress(DeviceFailed), device.active():  # a lost device has nothing to give back
        call("cuCtxSynchronize")
        memory.free()
        call("cuModuleUnload", module)
