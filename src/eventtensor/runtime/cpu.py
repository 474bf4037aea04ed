"""Kernels on CPU threads: build, bind, launch, report.

A kernel owns its threads, its cells and the workspace for scratch tensors. Launches of one kernel
are ordered; dims may change from one to the next without a new compile.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codegen import abi
from ..codegen.cpp import Flavour, coordinate_rank, generate
from ..config import Environment, Options, environment
from ..errors import BadOption, KernelClosed, NoTrace
from ..ir.plan import Plan
from ..ir.tensor import Role
from ..ir.walk import evaluate
from .build import build_library
from .facts import check_computed, check_inputs
from .failure import failure
from .record import LaunchRecord
from .trace import tensors_of_maps

Array = npt.NDArray[Any]
_ALIGN = 64
_LAYOUTS = 64  # dims whose scratch tensors are kept


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Debug builds: the task `coords` of `call` starts only when `until` tasks have completed."""

    call: str
    coords: tuple[int, ...]
    until: int


class CpuKernel:
    """`launch` takes what runtime.arguments.bind gives."""

    def __init__(self, plan: Plan, options: Options, env: Environment | None = None) -> None:
        env = env or environment()
        if options.workers < 0:
            raise BadOption(f"workers is {options.workers}")
        self.plan, self.options = plan, options
        self.workers = options.workers or env.default_workers
        self.source = generate(plan, Flavour(options.debug, options.trace))
        built = build_library(self.source, plan.program.name, env)
        self.library, self.compilations = built.path, 1
        self.from_cache = not built.fresh
        self._lib = _load(str(built.path))
        self._rank = coordinate_rank(plan)
        self._limit_s = env.wait_limit_s
        self._start()
        self._lock = threading.Lock()
        self._workspace: Array = np.empty(0, np.uint8)
        self._laid_out: dict[tuple[int, ...], dict[str, Array]] = {}
        self._last: LaunchRecord | None = None
        self._loaded = tensors_of_maps(plan)

    def _start(self) -> None:
        self._process = os.getpid()
        self._pool: int | None = self._lib.et_create(self.workers, self._limit_s)
        self._close = weakref.finalize(self, self._lib.et_destroy, self._pool)

    def close(self) -> None:
        """Join the worker threads. A closed kernel cannot be launched."""
        with self._lock:
            self._pool = None
            self._close()

    def launch(
        self,
        dims: Mapping[str, int],
        arrays: Mapping[str, Array],
        *,
        delay_seed: int = 0,
        hold: Sequence[HoldBack] = (),
    ) -> None:
        """Run once. `delay_seed` (random sleeps) and `hold` work in debug builds."""
        if self.options.debug:
            check_inputs(self.plan.program, dims, arrays)
        with self._lock:
            if self._pool is None:
                raise KernelClosed(f"kernel '{self.plan.program.name}' is closed")
            if self._process != os.getpid():  # threads do not follow a fork
                self._close.detach()
                self._start()
            everything = {**arrays, **self._scratch(dims)}
            if self.options.debug:
                self._poison(arrays)
            report = self._run(self._pool, dims, everything, delay_seed, hold)
            if self.options.trace:
                read = {n: everything[n].copy() for n in self._loaded}
                self._last = LaunchRecord(dict(dims), self._take_trace(), read)
            if int(report["code"]) != 0:
                raise failure(self.plan, dims, report)
            if self.options.debug:
                check_computed(self.plan.program, dims, everything)

    def _poison(self, arrays: Mapping[str, Array]) -> None:
        """Outputs hold nothing before a launch; in debug they show what was not written."""
        for t in self.plan.program.tensors:
            if t.role is Role.output:
                arrays[t.name].reshape(-1).view(np.uint8).fill(0xFF)

    @property
    def trace(self) -> LaunchRecord:
        """What the last launch did, task by task."""
        if self._last is None:
            raise NoTrace(f"kernel '{self.plan.program.name}' has no trace")
        return self._last

    def _run(
        self,
        pool: int,
        dims: Mapping[str, int],
        arrays: Mapping[str, Array],
        delay_seed: int,
        hold: Sequence[HoldBack],
    ) -> Any:
        program = self.plan.program
        sizes = np.array([dims[d.name] for d in program.dims] or [0], np.int64)
        places = np.array([arrays[t.name].ctypes.data for t in program.tensors] or [0], np.int64)
        holds = self._holds(hold)
        launch = np.zeros(1, abi.LAUNCH.dtype(self._rank))
        launch[0] = (
            sizes.ctypes.data, places.ctypes.data, delay_seed, holds.ctypes.data, len(hold), 0,
        )
        report = np.zeros(1, abi.REPORT.dtype(self._rank))
        self._lib.et_launch(pool, launch.ctypes.data, report.ctypes.data)
        return report[0]

    def _holds(self, hold: Sequence[HoldBack]) -> Array:
        names = [p.call.name for p in self.plan.program.calls]
        table = np.zeros(max(1, len(hold)), abi.HOLD.dtype(self._rank))
        for row, h in zip(table, hold, strict=False):
            row["call"], row["until"], row["rank"] = names.index(h.call), h.until, len(h.coords)
            row["coords"][: len(h.coords)] = h.coords
        return table

    def _scratch(self, dims: Mapping[str, int]) -> dict[str, Array]:
        """Scratch tensors; to lay them out takes longer than a small launch, so a few are kept."""
        key = tuple(dims[d.name] for d in self.plan.program.dims)
        if key not in self._laid_out:
            if len(self._laid_out) == _LAYOUTS:
                self._laid_out.clear()
            self._laid_out[key] = self._lay_out(dims)
        if self.options.debug:
            self._workspace.fill(0xFF)  # NaN in every float format
        return self._laid_out[key]

    def _lay_out(self, dims: Mapping[str, int]) -> dict[str, Array]:
        """Views of the workspace, which grows when it must; views of the old one go with it."""
        needed = evaluate(self.plan.workspace, dims)
        if needed + _ALIGN > self._workspace.nbytes:
            self._workspace = np.empty(needed + _ALIGN, np.uint8)
            self._laid_out.clear()
        start = -self._workspace.ctypes.data % _ALIGN
        found: dict[str, Array] = {}
        for b in self.plan.buffers:
            tensor = self.plan.program.tensor(b.tensor)
            shape = tuple(evaluate(s, dims) for s in tensor.shape)
            at = start + evaluate(b.offset, dims)
            size = int(np.prod(shape, dtype=np.int64)) * tensor.dtype.size
            place = self._workspace[at : at + size]
            found[b.tensor] = place.view(tensor.dtype.numpy).reshape(shape)
        for t in self.plan.program.tensors:  # a plan without memory placement
            if t.role is Role.scratch and t.name not in found:
                shape = tuple(evaluate(s, dims) for s in t.shape)
                found[t.name] = np.empty(shape, t.dtype.numpy)
        return found

    def _take_trace(self) -> Array:
        count = self._lib.et_trace(self._pool, None, 0)
        records = np.zeros(count, abi.TRACE.dtype(self._rank))
        if count:
            self._lib.et_trace(self._pool, records.ctypes.data, count)
        return records


def _load(path: str) -> ctypes.CDLL:
    lib = ctypes.CDLL(path)
    pointer, i64 = ctypes.c_void_p, ctypes.c_int64
    lib.et_create.argtypes, lib.et_create.restype = [i64, ctypes.c_double], pointer
    lib.et_launch.argtypes, lib.et_launch.restype = [pointer, pointer, pointer], i64
    lib.et_trace.argtypes, lib.et_trace.restype = [pointer, pointer, i64], i64
    lib.et_destroy.argtypes, lib.et_destroy.restype = [pointer], None
    return lib
