"""Kernels on an NVIDIA GPU: build, bind, launch as one cooperative kernel, report.

A kernel owns its cells, arena, workspace and the device copies of host arguments. Launches of one
kernel are ordered and synchronous; dims may change from one to the next without a new compile.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codegen import abi
from ..codegen.cuda import KERNEL, generate
from ..codegen.cuda.abi import CONTROL, PROGRESS, SHARED
from ..config import Environment, Options, environment
from ..errors import BadOption, DeviceFailed, KernelClosed, NoTrace
from ..ir.plan import Plan
from ..ir.tensor import Role, Tensor
from ..ir.walk import evaluate
from .cuda_arrays import DeviceArray, adopt, on_host
from .cuda_build import build_cubin
from .cuda_driver import Buffer, bindings, call, device, download, upload
from .facts import check_computed, check_inputs
from .failure import failure

Array = npt.NDArray[Any]
_CELL = 8  # bytes
_FIRST_CELLS = 1024


class CudaKernel:
    """`launch` takes what runtime.arguments.bind gives; `adopt` goes before it."""

    def __init__(self, plan: Plan, options: Options, env: Environment | None = None) -> None:
        env = env or environment()
        if options.trace:
            raise NoTrace("target 'cuda' records no trace", hint="trace on target 'cpu'")
        if options.workers < 0:
            raise BadOption(f"workers is {options.workers}")
        self.plan, self.options = plan, options
        self._device = device()
        self._device.activate()
        self._made = generate(plan, self._device.target, options.debug)
        self.source = self._made.text
        built = build_cubin(self.source, plan.program.name, self._device.target.architecture, env)
        self.library, self.compilations = built.path, 1
        self.from_cache = not built.fresh
        self._limit_ns = int(env.wait_limit_s * 1e9)
        self._module = call("cuModuleLoadData", built.path.read_bytes())
        self._function = call("cuModuleGetFunction", self._module, KERNEL.encode())
        self.workers = self._co_resident(options.workers)
        self._memory: dict[str, Buffer] = {}
        self._capacity = 0
        self._closed = False
        self._lock = threading.Lock()
        self._release = weakref.finalize(self, _free, self._memory, self._module)
        self._release.atexit = False  # the driver frees everything when the process ends

    def _co_resident(self, wanted: int) -> int:
        """As many workers as can wait for each other: all of them run at the same time."""
        query = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        made, attribute = self._made, bindings("driver").CUfunction_attribute
        room = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", self._function, room, made.shared_bytes)
        each = int(call(query, self._function, made.threads, made.shared_bytes))
        most = each * self._device.target.multiprocessors
        if most == 0:
            raise DeviceFailed("the kernel does not fit on a multiprocessor")
        if wanted > most:
            raise BadOption(
                f"workers is {wanted}, but only {most} can run at the same time",
                hint="leave workers away: one for each multiprocessor",
            )
        return wanted or self._device.target.multiprocessors

    adopt = staticmethod(adopt)

    def close(self) -> None:
        """Free the device memory. A closed kernel cannot be launched."""
        with self._lock:
            self._closed = True
            if self._release.alive:
                self._device.activate()
                self._release()

    # ---- one launch ------------------------------------------------------------------------

    def launch(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
        """Run once; outputs and states are written in place."""
        program = self.plan.program
        with self._lock:
            if self._closed:
                raise KernelClosed(f"kernel '{program.name}' is closed")
            self._device.activate()
            if self.options.debug:
                check_inputs(program, dims, {n: on_host(a) for n, a in arrays.items()})
            places = {**self._scratch(dims), **self._arguments(arrays)}
            self._prepare(dims, places)
            report = self._run(dims, places)
            if int(report["code"]) != 0:
                self._reset()
                raise failure(self.plan, dims, report)
            self._fetch(arrays, places)
            if self.options.debug:
                check_computed(program, dims, self._everything(dims, arrays, places))

    def _buffer(self, name: str) -> Buffer:
        return self._memory.setdefault(name, Buffer())

    def _arguments(self, arrays: Mapping[str, Array]) -> dict[str, int]:
        """Addresses on the device; host arrays are copied there."""
        places: dict[str, int] = {}
        for name, x in arrays.items():
            if isinstance(x, DeviceArray):
                places[name] = x.address
                continue
            buffer = self._buffer(f"argument {name}")
            buffer.reserve(x.nbytes)
            upload(buffer.address, x)
            places[name] = buffer.address
        return places

    def _fetch(self, arrays: Mapping[str, Array], places: Mapping[str, int]) -> None:
        for t in self.plan.program.tensors:
            if t.role in (Role.output, Role.state) and not isinstance(arrays[t.name], DeviceArray):
                download(arrays[t.name], places[t.name])

    def _scratch(self, dims: Mapping[str, int]) -> dict[str, int]:
        workspace = self._buffer("workspace")
        workspace.reserve(evaluate(self.plan.workspace, dims))
        if self.options.debug:
            workspace.clear(0xFF)  # NaN in every float format
        places = {
            b.tensor: workspace.address + evaluate(b.offset, dims) for b in self.plan.buffers
        }
        for t in self.plan.program.tensors:  # a plan without memory placement
            if t.role is Role.scratch and t.name not in places:
                buffer = self._buffer(f"scratch {t.name}")
                buffer.reserve(_bytes(t, dims))
                places[t.name] = buffer.address
        return places

    def _prepare(self, dims: Mapping[str, int], places: Mapping[str, int]) -> None:
        """Cells, arena, and the tensors that do not keep what they held."""
        needed = evaluate(self._made.cells, dims)
        if self._capacity < max(needed, 1):
            self._capacity = max(needed, 2 * self._capacity, _FIRST_CELLS)
            self._buffer("cells").reserve(2 * self._capacity * _CELL)
            self._buffer("control").reserve(CONTROL.dtype(self._made.rank).itemsize)
            self._buffer("report").reserve(abi.REPORT.dtype(self._made.rank).itemsize)
            size = PROGRESS.dtype(self._made.rank).itemsize * self.workers
            self._buffer("progress").reserve(size)
            self._reset()
        self._buffer("arena").reserve(self._arena(dims) * self.workers)
        for t in self.plan.program.tensors:
            size = _bytes(t, dims)
            if size and t.role is Role.output and self.options.debug:
                call("cuMemsetD8", places[t.name], 0xFF, size)
            if size and t.name in self._made.zeroed:
                call("cuMemsetD8", places[t.name], 0, size)

    def _arena(self, dims: Mapping[str, int]) -> int:
        return -(-evaluate(self._made.arena, dims) // 256) * 256

    def _reset(self) -> None:
        """Nobody knows how far a failed launch came: both sets of cells start clean."""
        for name in ("cells", "control", "report", "progress"):
            self._buffer(name).clear()

    def _run(self, dims: Mapping[str, int], places: Mapping[str, int]) -> Any:
        program, rank = self.plan.program, self._made.rank
        shared = np.zeros(1, SHARED.dtype(rank))
        at = {n: self._buffer(n).address for n in ("cells", "control", "report", "progress")}
        shared[0] = (
            at["cells"], self._capacity, at["control"], at["report"], at["progress"],
            self._buffer("arena").address, self._arena(dims), self._limit_ns,
        )
        sizes = [dims[d.name] for d in program.dims] or [0]
        tensors = [places[t.name] for t in program.tensors] or [0]
        launch = np.array([*sizes, *tensors], np.int64)
        params = np.array([shared.ctypes.data, launch.ctypes.data], np.uint64)
        call(
            "cuLaunchCooperativeKernel", self._function, self.workers, 1, 1,
            self._made.threads, 1, 1, self._made.shared_bytes, 0, params.ctypes.data,
        )
        call("cuCtxSynchronize")
        report = np.zeros(1, abi.REPORT.dtype(rank))
        download(report, at["report"])
        return report[0]

    def _everything(
        self, dims: Mapping[str, int], arrays: Mapping[str, Array], places: Mapping[str, int]
    ) -> dict[str, Array]:
        """All tensors on the host, scratch too."""
        found = {n: on_host(a) for n, a in arrays.items()}
        for t in self.plan.program.tensors:
            if t.role is Role.scratch:
                shape = tuple(evaluate(s, dims) for s in t.shape)
                found[t.name] = np.empty(shape, t.dtype.numpy)
                download(found[t.name], places[t.name])
        return found


def _bytes(t: Tensor, dims: Mapping[str, int]) -> int:
    count = 1
    for s in t.shape:
        count *= evaluate(s, dims)
    return count * t.dtype.size


def _free(memory: dict[str, Buffer], module: Any) -> None:
    for buffer in memory.values():
        buffer.free()
    memory.clear()
    call("cuModuleUnload", module)
