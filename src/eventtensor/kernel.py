"""A compiled program: what users call. It binds arrays to tensors and hands them to a back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from .analysis.report import CheckReport
from .config import Options
from .errors import NoTrace
from .interp.run import run
from .ir.plan import Plan
from .runtime.arguments import bind
from .runtime.cpu import CpuKernel
from .runtime.cuda import CudaKernel
from .runtime.trace import write_trace

Array = npt.NDArray[Any]


class Backend(Protocol):
    """What runs a plan: `runtime.cpu.CpuKernel`, `runtime.cuda.CudaKernel` and `Interpreter`."""

    source: str
    workers: int

    def launch(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None: ...

    def close(self) -> None: ...


class Interpreter:
    """The interpreter as a back end: a new legal order at each launch, races are errors."""

    source = ""
    workers = 1

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan, self.options, self.launches = plan, options, 0

    def launch(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
        seed, self.launches = self.launches, self.launches + 1
        run(self.plan, dims, arrays, seed=seed, debug=self.options.debug).raise_if_bad()

    def close(self) -> None:
        """Nothing to release."""


BACKENDS: dict[str, Callable[[Plan, Options], Backend]] = {
    "interp": Interpreter,
    "cpu": CpuKernel,
    "cuda": CudaKernel,
}


class Kernel:
    """A compiled program. Call it with arrays by name; dims come from their shapes."""

    def __init__(self, plan: Plan, options: Options, report: CheckReport) -> None:
        self.plan, self.options, self.report = plan, options, report
        self.backend = BACKENDS[options.target](plan, options)
        self.compilations = 1

    @property
    def source(self) -> str:
        """The generated code (empty for the interpreter)."""
        return self.backend.source

    def __call__(self, **arrays: object) -> None:
        """Run once; outputs and states are written in place."""
        given = self.backend.adopt(arrays) if isinstance(self.backend, CudaKernel) else arrays
        dims, bound = bind(self.plan.program, given)
        self.backend.launch(dims, bound)

    def write_trace(self, path: str | Path) -> None:
        """The last launch as Chrome/Perfetto JSON; compile with trace=True."""
        if not isinstance(self.backend, CpuKernel):
            raise NoTrace(f"target {self.options.target!r} records no trace")
        write_trace(self.plan, self.backend.trace, path)

    def close(self) -> None:
        """Stop the workers. A closed kernel cannot be called."""
        self.backend.close()
