"""Runs a library of generated C++ on a pool of threads: cells, workspace, launches.

It needs no plan, so a kernel from an artifact runs like a compiled one. Launches of one kernel are
ordered. Dims may change from one launch to the next.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codegen import abi
from ..errors import KernelClosed, LibraryRefused, NoThreads
from ..ir.allocate import allocate
from ..ir.expr import Node
from ..ir.tensor import Role
from ..ir.walk import evaluate
from .failure import launch_error
from .interface import BufferOffset, Interface

Array = npt.NDArray[Any]
_ALIGN = 64
_LAYOUTS = 64  # dims whose scratch layout is cached


@dataclass(frozen=True)
class CpuImage:
    """A built library, and the facts that a launch needs. `buffers` lie in the workspace, which has
    `workspace` bytes. `rank` is the length of the longest task coordinate."""

    interface: Interface
    rank: int
    workspace: Node
    buffers: tuple[BufferOffset, ...]
    library: Path


class ThreadKernel:
    """A kernel on threads. `launch` takes the result of runtime.arguments.bind."""

    def __init__(self, image: CpuImage, workers: int, limit_s: float) -> None:
        self.image, self.workers, self._limit_s = image, workers, limit_s
        self._lib = _load(str(image.library))
        self._start()
        self._lock = threading.Lock()
        _OPEN.add(self)
        self._workspace: Array = np.empty(0, np.uint8)
        self._laid_out: dict[tuple[int, ...], dict[str, Array]] = {}

    def _start(self) -> None:
        self._process = os.getpid()
        self._pool: int | None = self._lib.et_create(self.workers, self._limit_s)
        if self._pool is None:
            raise NoThreads(f"the machine cannot start {self.workers} worker threads")
        self._close = weakref.finalize(
            self, _end, self._lib.et_destroy, self._pool, self._process)
        self._close.atexit = False  # a daemon thread may be in a launch when the process ends

    def close(self) -> None:
        """Join the worker threads. A closed kernel cannot be launched."""
        with self._lock:
            self._pool = None
            self._close()

    def launch(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
        """Run once."""
        with self._lock:
            pool = self._alive()
            report = self._run(pool, dims, {**arrays, **self._scratch(dims)})
            if int(report["code"]) != 0:
                raise launch_error(self.image.interface, dims, report)

    def unlock(self) -> None:
        """Make a new lock after a fork, because the holder of the old one is in another process."""
        self._lock = threading.Lock()

    def _alive(self) -> int:
        if self._pool is None:
            raise KernelClosed(f"kernel '{self.image.interface.name}' is closed")
        if self._process != os.getpid():  # threads do not follow a fork
            self._close.detach()
            self._start()
        return self._pool

    def _run(
        self, pool: int, dims: Mapping[str, int], arrays: Mapping[str, Array], delay_seed: int = 0,
        holds: Array | None = None,
    ) -> Any:
        known = self.image.interface
        sizes = np.array([dims[d.name] for d in known.dims] or [0], np.int64)
        places = np.array([arrays[t.name].ctypes.data for t in known.tensors] or [0], np.int64)
        some = np.zeros(1, abi.HOLD.dtype(self.image.rank)) if holds is None else holds
        count = 0 if holds is None else len(holds)
        launch = np.zeros(1, abi.LAUNCH.dtype(self.image.rank))
        launch[0] = (
            sizes.ctypes.data, places.ctypes.data, delay_seed, some.ctypes.data, count, 0,
        )
        report = np.zeros(1, abi.REPORT.dtype(self.image.rank))
        self._lib.et_launch(pool, launch.ctypes.data, report.ctypes.data)
        return report[0]

    def _scratch(self, dims: Mapping[str, int]) -> dict[str, Array]:
        """The scratch tensors. Their layout takes longer than a small launch, so it is cached."""
        key = tuple(dims[d.name] for d in self.image.interface.dims)
        if key not in self._laid_out:
            if len(self._laid_out) == _LAYOUTS:
                self._laid_out.clear()
            self._laid_out[key] = self._lay_out(dims)
        return self._laid_out[key]

    def _lay_out(self, dims: Mapping[str, int]) -> dict[str, Array]:
        """Views of the workspace. If it grows, views of the old one are dropped."""
        needed = evaluate(self.image.workspace, dims)
        if needed + _ALIGN > self._workspace.nbytes:
            self._workspace = allocate("the workspace", (needed + _ALIGN,), np.uint8, dims)
            self._laid_out.clear()
        start = -self._workspace.ctypes.data % _ALIGN
        tensors = {t.name: t for t in self.image.interface.tensors}
        found: dict[str, Array] = {}
        for b in self.image.buffers:
            tensor = tensors[b.tensor]
            shape = tuple(evaluate(s, dims) for s in tensor.shape)
            at = start + evaluate(b.offset, dims)
            size = int(np.prod(shape, dtype=np.int64)) * tensor.dtype.size
            place = self._workspace[at : at + size]
            found[b.tensor] = place.view(tensor.dtype.numpy).reshape(shape)
        for t in tensors.values():  # a plan without a memory layout
            if t.role is Role.scratch and t.name not in found:
                shape = tuple(evaluate(s, dims) for s in t.shape)
                found[t.name] = allocate(f"scratch '{t.name}'", shape, t.dtype.numpy, dims)
        return found


def _end(destroy: Callable[[int], None], pool: int, process: int) -> None:
    """A forked child has a copy of the pool and none of its threads, so it cannot join them."""
    if os.getpid() == process:
        destroy(pool)


_OPEN: weakref.WeakSet[ThreadKernel] = weakref.WeakSet()


def _unlock_all() -> None:
    for kernel in list(_OPEN):
        kernel.unlock()


os.register_at_fork(after_in_child=_unlock_all)


def _load(path: str) -> ctypes.CDLL:
    try:
        return _typed(ctypes.CDLL(path))
    except (OSError, AttributeError) as e:
        raise LibraryRefused(f"{path} cannot be loaded: {e}") from e


def _typed(lib: ctypes.CDLL) -> ctypes.CDLL:
    pointer, i64 = ctypes.c_void_p, ctypes.c_int64
    lib.et_create.argtypes, lib.et_create.restype = [i64, ctypes.c_double], pointer
    lib.et_launch.argtypes, lib.et_launch.restype = [pointer, pointer, pointer], i64
    lib.et_trace.argtypes, lib.et_trace.restype = [pointer, pointer, i64], i64
    lib.et_destroy.argtypes, lib.et_destroy.restype = [pointer], None
    return lib
