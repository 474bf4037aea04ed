"""A compiled program, which users call with arrays by name.

It binds arrays to tensors and launches them on a back end. Back ends are in runtime and interp.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from .analysis.check_report import CheckReport
from .config import Options
from .errors import BadOption, DataRefused, NoTrace, OutOfMemory
from .interp.run import run
from .interp.validation import Subjects, violations
from .ir.allocate import at_dims
from .ir.plan import Plan
from .ir.program import Program
from .runtime.arguments import bind
from .runtime.chrome_trace import write_trace
from .runtime.cpu_artifact import save as save_threads
from .runtime.cpu_kernel import CpuKernel
from .runtime.cuda.aot_kernel import AotKernel
from .runtime.cuda.cuda_artifact import save
from .runtime.cuda.cuda_kernel import CudaKernel
from .runtime.cuda.device_arrays import DeviceArray, adopt, on_host
from .runtime.cuda.launch import BoundLaunch
from .runtime.cuda.loaded_kernel import bind_step, call_kernel
from .runtime.interface import Interface, interface_of

Array = npt.NDArray[Any]


class Backend(Protocol):
    """Runs a plan: `CpuKernel`, `CudaKernel`, `AotKernel` and `Interpreter`."""

    source: str
    workers: int

    def launch(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None: ...

    def close(self) -> None: ...


class Interpreter:
    """The interpreter as a back end. Each launch has another legal order; races are errors."""

    source = ""
    workers = 1

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan, self.options, self.launches = plan, options, 0

    def launch(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
        seed, self.launches = self.launches, self.launches + 1
        try:
            run(self.plan, dims, arrays, seed=seed, debug=self.options.debug).raise_if_bad()
        except MemoryError as e:
            raise OutOfMemory(f"a temporary of a task: {e}{at_dims(dims)}") from None

    def close(self) -> None:
        """Nothing to release."""


def _cuda_backend(plan: Plan, options: Options) -> Backend:
    """A kernel for a GPU of this machine, or for a GPU by its name."""
    kind = AotKernel if isinstance(options.device, str) else CudaKernel
    return kind(plan, options)


BACKENDS: dict[str, Callable[[Plan, Options], Backend]] = {
    "interp": Interpreter,
    "cpu": CpuKernel,
    "cuda": _cuda_backend,
}


class Kernel:
    """A compiled program. Call it with arrays by name; dims come from their shapes."""

    def __init__(
        self, program: Program, plan: Plan, options: Options, report: CheckReport
    ) -> None:
        self.program, self.plan, self.options, self.report = program, plan, options, report
        self.backend = BACKENDS[options.target](plan, options)
        self.interface: Interface = interface_of(plan)  # dims and tensors, as launches see them
        self.compilations = 1

    @property
    def source(self) -> str:
        """The generated code (empty for the interpreter)."""
        return self.backend.source

    def __call__(self, **arrays: object) -> None:
        """Run once and wait; outputs and states are written in place."""
        if self.options.target == "cuda":
            call_kernel(self._on_device("a call"), arrays)
            return
        dims, bound = bind(self.interface, arrays)
        self.backend.launch(dims, bound)

    def validate(self, **arrays: object) -> None:
        """Check all obligations of the proof on the arrays of a launch. Nothing is launched or
        written. NumPy computes the run-time data that obligations need."""
        is_cuda = self.options.target == "cuda"
        dims, bound = bind(self.interface, adopt(arrays) if is_cuda else arrays)
        if any(isinstance(x, DeviceArray) for x in bound.values()):
            with self._on_device("validate").device.active():
                bound = {n: on_host(x) for n, x in bound.items()}
        owed = self.report.obligations
        subjects = Subjects(
            frozenset(o.event for o in owed if o.event is not None),
            frozenset(o.tensor for o in owed if o.tensor is not None),
            frozenset(o.call for o in owed if o.call is not None))
        broken = violations(self.program, self.plan, dims, bound, subjects) if owed else []
        if broken:
            word = "statement" if len(broken) == 1 else "statements"
            raise DataRefused(
                f"the data breaks {len(broken)} {word} of program '{self.program.name}':",
                broken=[str(b) for b in broken])

    def write_trace(self, path: str | Path) -> None:
        """The last launch as Chrome/Perfetto JSON; compile with trace=True."""
        if not isinstance(self.backend, CpuKernel | CudaKernel | AotKernel):
            raise NoTrace(f"target {self.options.target!r} records no trace")
        write_trace(self.plan, self.backend.trace, path)

    def close(self) -> None:
        """Stop the workers. A closed kernel cannot be called."""
        self.backend.close()

    def save(self, folder: str | Path) -> None:
        """Write an artifact, which `et.load` reads on a machine without the compiler. For a GPU by
        its name no GPU is needed."""
        if isinstance(self.backend, CpuKernel):
            if self.options.debug or self.options.trace:
                raise BadOption("a kernel for threads is saved without debug and trace",
                                hint="compile it again without them")
            save_threads(self.backend.image, self.source, folder)
        elif isinstance(self.backend, AotKernel):
            save(self.backend.image, folder)
        else:
            save(self._on_device("save").image, folder)

    # ---- target cuda -----------------------------------------------------------------------

    def bind(self, **arrays: object) -> BoundLaunch:
        """A bound launch for these arrays, which must be in device memory. `step(stream)` enqueues
        one launch and returns. See `BoundLaunch` for the order of launches."""
        return bind_step(self._on_device("bind"), arrays)

    def synchronize(self) -> None:
        """Wait for all bound launches, and raise their errors."""
        self._on_device("synchronize").synchronize()

    def check(self) -> None:
        """Raise errors of ended launches, without waiting for others."""
        self._on_device("check").check()

    def has_ended(self, number: int) -> bool:
        """True if the launch of this number has ended. Raises its errors."""
        return self._on_device("has_ended").has_ended(number)

    def over(self, number: int) -> bool:
        """The old name of `has_ended`."""
        warnings.warn("over is called has_ended now", DeprecationWarning, stacklevel=2)
        return self.has_ended(number)

    def _on_device(self, what: str) -> CudaKernel:
        if isinstance(self.backend, AotKernel):
            self.backend = self.backend.load()
        if isinstance(self.backend, CudaKernel):
            return self.backend
        raise BadOption(
            f"{what} is for target 'cuda', but this kernel has target {self.options.target!r}",
            hint="compile with target='cuda'",
        )
