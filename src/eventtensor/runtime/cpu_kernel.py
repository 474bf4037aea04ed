"""Compiled kernels on CPU threads, built from a plan.

Debug builds check data, delay tasks and record traces. thread_kernel.py runs the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codegen import abi
from ..codegen.cpp import Flavour, coordinate_rank, generate
from ..config import Environment, Options, environment
from ..errors import NoTrace
from ..ir.plan import Plan
from ..ir.tensor import Role
from .chrome_trace import tensors_of_maps
from .cpp_build import build_library
from .data_contracts import check_computed, check_inputs
from .failure import launch_error
from .interface import BufferOffset, interface_of
from .launch_record import LaunchRecord
from .thread_kernel import CpuImage, ThreadKernel

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Debug builds: the task `coords` of `call` starts only when `until` tasks have completed."""

    call: str
    coords: tuple[int, ...]
    until: int


def generate_source(plan: Plan, options: Options) -> str:
    """The source that is compiled for a plan, byte for byte."""
    return generate(plan, Flavour(options.debug, options.trace))


class CpuKernel(ThreadKernel):
    """The kernel of a plan."""

    def __init__(self, plan: Plan, options: Options, env: Environment | None = None) -> None:
        env = env or environment()
        self.plan, self.options = plan, options
        self.source = generate_source(plan, options)
        built = build_library(self.source, plan.program.name, env)
        self.library, self.compilations = built.path, 1
        self.from_cache = not built.fresh
        buffers = tuple(BufferOffset(b.tensor, b.offset) for b in plan.buffers)
        image = CpuImage(
            interface_of(plan), coordinate_rank(plan), plan.workspace, buffers, built.path)
        super().__init__(image, options.workers or env.default_workers, env.wait_limit_s)
        self._last: LaunchRecord | None = None
        self._loaded = tensors_of_maps(plan)

    def launch(
        self,
        dims: Mapping[str, int],
        arrays: Mapping[str, Array],
        *,
        delay_seed: int = 0,
        hold: Sequence[HoldBack] = (),
    ) -> None:
        """Run once. `delay_seed` (random sleeps) and `hold` need a debug build."""
        if self.options.debug:
            check_inputs(self.plan.program, dims, arrays)
        with self._lock:
            pool = self._alive()
            everything = {**arrays, **self._scratch(dims)}
            if self.options.debug:
                self._poison(arrays)
            holds = self._holds(hold) if hold else None
            report = self._run(pool, dims, everything, delay_seed, holds)
            if self.options.trace:
                read = {n: everything[n].copy() for n in self._loaded}
                self._last = LaunchRecord(dict(dims), self._take_trace(), read)
            if int(report["code"]) != 0:
                raise launch_error(self.plan, dims, report)
            if self.options.debug:
                check_computed(self.plan.program, dims, everything)

    def _poison(self, arrays: Mapping[str, Array]) -> None:
        """Poison outputs and scratch, so that debug builds find unwritten elements."""
        self._workspace.fill(0xFF)  # NaN in every float format
        for t in self.plan.program.tensors:
            if t.role is Role.output:
                arrays[t.name].reshape(-1).view(np.uint8).fill(0xFF)

    @property
    def trace(self) -> LaunchRecord:
        """The record of the last launch, task by task."""
        if self._last is None:
            raise NoTrace(f"kernel '{self.plan.program.name}' has no trace")
        return self._last

    def _holds(self, hold: Sequence[HoldBack]) -> Array:
        names = [p.call.name for p in self.plan.program.calls]
        table = np.zeros(len(hold), abi.HOLD.dtype(self.image.rank))
        for row, h in zip(table, hold, strict=True):
            row["call"], row["until"], row["rank"] = names.index(h.call), h.until, len(h.coords)
            row["coords"][: len(h.coords)] = h.coords
        return table

    def _take_trace(self) -> Array:
        count = self._lib.et_trace(self._pool, None, 0)
        records = np.zeros(count, abi.TRACE.dtype(self.image.rank))
        if count:
            self._lib.et_trace(self._pool, records.ctypes.data, count)
        return records
