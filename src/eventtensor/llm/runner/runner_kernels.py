"""The kernels of a runner, one for each shape of step. Threads build them at the same time, and a
step waits for its own kernel only; or they come from an artifact (model_artifact.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from eventtensor import Kernel, Program, load

from ...compiler import planned
from ...errors import KernelClosed
from ...runtime.cpu_artifact import LoadedThreadKernel
from ...runtime.cuda.loaded_kernel import LoadedKernel

# Kernels with the interface that a runner needs.
AnyKernel = Kernel | LoadedKernel | LoadedThreadKernel


@dataclass(frozen=True)
class KernelShape:
    """The steps of a kernel: up to `rows` tokens. `decode_only`: each is the newest of its own
    sequence and gets a successor."""

    rows: int
    decode_only: bool = False

    def includes(self, step: KernelShape) -> bool:
        return step.rows <= self.rows and (step.decode_only or not self.decode_only)


def select_kernel(kernels: Iterable[KernelShape], step: KernelShape) -> KernelShape:
    """The smallest shape that includes a step."""
    return min((s for s in kernels if s.includes(step)), key=lambda s: (s.rows, not s.decode_only))


class RunnerKernels:
    """Kernels of `programs` by their shapes, built in this order."""

    def __init__(
        self, programs: Mapping[KernelShape, Program], target: str, options: Mapping[str, Any]
    ) -> None:
        self._kernels: dict[KernelShape, Future[AnyKernel]] = {}
        self._closed = False
        builders = ThreadPoolExecutor(max(1, len(programs)), thread_name_prefix="build")
        try:
            for shape, program in programs.items():
                self._kernels[shape] = builders.submit(planned(program, target, options))
        except BaseException:
            self.close()
            raise
        finally:
            builders.shutdown(wait=False)

    @classmethod
    def load(cls, folders: Mapping[KernelShape, Path], options: Mapping[str, Any]) -> Self:
        """The kernels of artifacts, by their shapes."""
        found = cls({}, "", {})
        for shape, folder in folders.items():
            found._kernels[shape] = Future()
            found._kernels[shape].set_result(load(folder, **options))
        return found

    def save(self, folders: Mapping[KernelShape, Path]) -> None:
        for shape, folder in folders.items():
            kernel = self._kernels[shape].result()
            assert isinstance(kernel, Kernel), "a loaded kernel is saved already"
            kernel.save(folder)

    def select(self, step: KernelShape) -> AnyKernel:
        """The kernel for a step; waits until it is built."""
        if self._closed:
            raise KernelClosed("the runner is closed", hint="an error of a launch closes it too")
        return self._kernels[select_kernel(self._kernels, step)].result()

    def all(self) -> list[AnyKernel]:
        return [kernel.result() for kernel in self._kernels.values()]

    def close(self) -> None:
        """Waits for builds and closes all kernels, also after one fails to close."""
        self._closed = True
        with ExitStack() as closing:
            for kernel in self._kernels.values():
                if kernel.exception() is None:
                    closing.callback(kernel.result().close)
