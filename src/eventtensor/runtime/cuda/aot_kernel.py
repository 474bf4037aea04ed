"""Kernels that are compiled ahead of time for a GPU by its name. The machine needs no GPU.

The first launch loads the kernel on the first GPU of the machine, which must have that
architecture. `save` writes an artifact for other machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from ...config import Environment, Options, environment
from ...errors import KernelClosed, NoDevice, NoTrace
from ...ir.plan import Plan
from ...targets.devices import find_device
from ..launch_record import LaunchRecord
from .cuda_kernel import CudaKernel, build_image
from .device_kernel import Array


class AotKernel:
    """A plan compiled for the GPU that the options name. `load` puts it on one."""

    def __init__(self, plan: Plan, options: Options, env: Environment | None = None) -> None:
        self.plan, self.options, self.env = plan, options, env or environment()
        self.target = find_device(str(options.device))
        self.build = build_image(plan, options, self.target, self.env)
        self.image, self.source = self.build.image, self.build.image.source
        self.workers = options.workers or self.target.multiprocessors
        self._kernel: CudaKernel | None = None
        self._is_closed, self._lock = False, Lock()

    def load(self) -> CudaKernel:
        """The kernel on the first GPU of this machine. Every call returns the same one."""
        with self._lock:
            if self._is_closed:
                raise KernelClosed(f"kernel '{self.plan.program.name}' is closed")
            if self._kernel is None:
                self._kernel = self._load()
            return self._kernel

    def _load(self) -> CudaKernel:
        try:
            return CudaKernel(self.plan, self.options, self.env, build=self.build)
        except NoDevice as e:
            raise NoDevice(
                f"'{self.plan.program.name}' is compiled for {self.target.name}, and there is no "
                f"GPU here to launch it: {e.message}",
                hint="kernel.save(folder) here, et.load(folder) on a machine with this GPU",
            ) from None

    def launch(self, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
        self.load().launch(dims, arrays)

    @property
    def trace(self) -> LaunchRecord:
        """There is no record, because there was no launch."""
        raise NoTrace(f"kernel '{self.plan.program.name}' was not launched")

    def close(self) -> None:
        """Close it: a closed kernel cannot be loaded. A loaded one is closed separately."""
        self._is_closed = True
